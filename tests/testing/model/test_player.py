"""Which step a request gets: by history, by counter, by thread, by URL; side requests; checks."""

from assay.testing.model import ScriptedModel

STEPS = [{"text": "one"}, {"text": "two"}, {"text": "three"}]


def test_step_follows_the_history(client, provider, text_of) -> None:
    with ScriptedModel({"steps": STEPS}) as model:
        one = client(model, provider)
        said = [text_of(provider, one.ask(answers=n)) for n in (0, 2, 1, 1, 0, 3)]
    assert said == ["one", "three", "two", "two", "one", "The script has no further step."]
    assert [r.step for r in model.requests] == [0, 2, 1, 1, 0, 3]
    assert model.requests[-1].served == "exhausted"


def test_counter_ignores_the_history_and_counts_only_answers(client, provider, text_of) -> None:
    steps = [{"text": "one", "faults": [{"status": 500}]}, {"text": "two"}]
    script = {"select": "counter", "steps": steps, "exhausted": {"text": "over"}}
    with ScriptedModel(script) as model:
        one = client(model, provider)
        got = [one.ask(answers=5) for _ in range(4)]
    assert got[0].status == 500
    assert [text_of(provider, answer) for answer in got[1:]] == ["one", "two", "over"]


def test_threads_by_what_the_user_said(client, provider, text_of) -> None:
    threads = [
        {"name": "sub", "when": {"firstUserContains": "helper"}, "steps": [{"text": "sub"}]},
        {"when": {"lastUserContains": "late"}, "steps": [{}, {"text": "no"}]},
        {"when": {"provider": "gemini", "bodyContains": "xyzzy"}, "steps": [{"text": "magic"}]},
    ]
    with ScriptedModel({"steps": STEPS, "threads": threads}) as model:
        one = client(model, provider)
        assert text_of(provider, one.ask("you are a helper")) == "sub"
        assert text_of(provider, one.ask("anything")) == "one"
        magic = text_of(provider, one.ask("xyzzy"))
    assert magic == ("magic" if provider == "gemini" else "one")
    assert [r.thread for r in model.requests][:2] == ["sub", "main"]


def test_last_user_is_what_came_after_the_last_answer(client) -> None:
    threads = [{"when": {"lastUserContains": "again"}, "steps": [{}, {"text": "second turn"}]}]
    messages = [
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "yes"},
        {"role": "user", "content": "again"},
    ]
    body = {"messages": messages, "tools": [{"name": "Bash"}]}
    with ScriptedModel({"steps": STEPS, "threads": threads}) as model:
        got = client(model).post("/v1/messages", body)
        del messages[2]["content"]
        messages[2]["content"] = "more"
        other = client(model).post("/v1/messages", body)
    assert got.json["content"][0]["text"] == "second turn"
    assert other.json["content"][0]["text"] == "two"


def test_url_prefix_chooses_script_and_counter(client, provider, text_of) -> None:
    script = {
        "scripts": {
            "a": {"select": "counter", "steps": STEPS},
            "b": {"steps": [{"text": "bee"}]},
        }
    }
    with ScriptedModel(script) as model:

        def ask(name: str, run: str = "") -> str:
            one = client(model, provider, url=model.url_for(name, run))
            return text_of(provider, one.ask())

        assert [ask("a"), ask("a"), ask("a", "7"), ask("b"), ask("a")] == [
            "one", "two", "one", "bee", "three",
        ]  # fmt: skip
        missing = client(model, provider, url=model.url_for("c")).ask()
    assert missing.status == 404
    assert "a, b" in missing.json["error"]["message"]
    assert model.requests[2].lane == "a@7"


def test_any_prefix_works_when_the_script_has_one_play(client, text_of) -> None:
    with ScriptedModel({"select": "counter", "steps": STEPS}) as model:
        said = [
            text_of("chat", client(model, "chat", url=model.url_for(name)).ask())
            for name in ("x", "y", "x")
        ]
    assert said == ["one", "one", "two"]


def test_requests_without_tools_use_up_no_step(client, provider, text_of) -> None:
    script = {"select": "counter", "steps": STEPS, "aux": {"text": "A title"}}
    with ScriptedModel(script) as model:
        one = client(model, provider)
        assert text_of(provider, one.ask(tools=False)) == "A title"
        assert text_of(provider, one.ask()) == "one"
    assert [r.served for r in model.requests] == ["side", "step"]


def test_toolless_step(client, provider, text_of) -> None:
    with ScriptedModel({"toolless": "step", "steps": STEPS}) as model:
        assert text_of(provider, client(model, provider).ask(tools=False)) == "one"


def test_named_side_answers_come_first(client, provider, text_of) -> None:
    side = [{"when": {"bodyContains": "summarise"}, "answer": {"text": "short"}}]
    with ScriptedModel({"steps": STEPS, "side": side}) as model:
        assert text_of(provider, client(model, provider).ask("summarise this")) == "short"


def test_expectations(client, provider) -> None:
    steps = [{"text": "ok", "expect": ['say "hi"\nü'], "refuse": ["secret"]}]
    with ScriptedModel({"steps": steps}) as model:
        one = client(model, provider)
        assert one.ask('please say "hi"\nü').status == 200
        lacking = one.ask("nothing")
        holding = one.ask('say "hi"\nü and a secret')
    assert lacking.status == 418
    assert "the request lacks" in lacking.json["error"]["message"]
    assert "'secret'" in holding.json["error"]["message"]
    assert [r.served for r in model.requests] == ["step", "unexpected", "unexpected"]
    assert model.requests[1].problems == ("the request lacks 'say \"hi\"\\nü'",)


def test_placeholders_reach_texts_and_arguments(client, provider) -> None:
    call = {"name": "note", "arguments": {"deep": ["{{last_tool_result}}"]}}
    steps = [{}, {"text": "{{last_user}} → {{last_tool_result}}", "calls": [call], "chunks": 1}]
    with ScriptedModel({"steps": steps}) as model:
        text = client(model, provider).ask("prompt", answers=1, result="42").text
    assert "prompt \\u2192 42" in text
    assert '"deep"' in text.replace('\\"', '"')
    assert model.requests[0].last_tool_result == "42"


def test_ids_are_fixed_and_apart(client, provider, ids_of) -> None:
    calls = [{"tool": "shell", "command": "a"}, {"tool": "shell", "command": "b", "id": "mine"}]
    seen = []
    for _ in range(2):
        with ScriptedModel({"steps": [{"calls": calls}] * 2}) as model:
            one = client(model, provider)
            asked = [one.ask("p"), one.ask("p", answers=1), one.ask("other"), one.ask("p")]
            seen.append([ids_of(provider, got) for got in asked])
    assert seen[0] == seen[1]
    first, second, other, again = (ids[0] for ids in seen[0])
    assert first == again
    assert len({first, second, other}) == 3
    assert seen[0][0][1] == "mine"


def test_each_conversation_has_its_own_faults(client) -> None:
    script = {"steps": [{"text": "x", "faults": [{"status": 429}]}]}
    with ScriptedModel(script) as model:
        sessions = [client(model, headers={"session-id": name}) for name in ("a", "b")]
        assert [one.ask().status for one in sessions * 2] == [429, 429, 200, 200]
        assert [client(model).ask(p).status for p in ("p", "q", "p")] == [429, 429, 200]
