"""A user who answers the agent, by a script or by a model: what it says and costs stands apart."""

import json
import random
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from assay.errors import InputError
from assay.pipeline.remote import named_variables
from assay.pipeline.simulated_user import ScriptedUser, broken_rule
from assay.records.capture import Cause
from assay.records.recording import Recording
from assay.records.spec import (
    Expect,
    Limits,
    PluginRef,
    Prompt,
    Reply,
    Surroundings,
    TrialSpec,
    User,
    check_prompt,
)
from assay.testing import model

ACP = Path(__file__).parents[1] / "agents" / "acp_scripted.py"
SHOP = """case "$PROMPT" in
*red*) echo Ordered.;; *Medium*) echo "Which colour?";; *) echo "Which size?";; esac"""
REPLIES = [{"when": "(?i)WHICH size", "say": "Medium."}, {"when": "colour", "say": "red"}]
KEY = "sk-a-key-that-no-agent-may-see"


@pytest.fixture(autouse=True)
def own_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USER_API_KEY", KEY)


def plays(*said: Any) -> dict[str, Any]:
    """A model that says these things one after another, and the last of them from then on."""
    texts = [one if isinstance(one, str) else json.dumps(one) for one in said]
    steps = [{"text": text, "usage": {"input": 1000, "output": 10}} for text in texts]
    return {"toolless": "step", "select": "counter", "steps": steps, "exhausted": steps[-1]}


def say(text: str) -> dict[str, Any]:
    return {"say": text, "stop": not text}


@pytest.fixture
def shop(assay: Callable, prompts: Callable, tmp_path: Path) -> Callable[..., Any]:
    """Capture one prompt whose user a model plays; return the row, and what was printed."""

    def capture(script: dict[str, Any], *words: Any, **user: Any) -> tuple[dict[str, Any], str]:
        row = user.pop("row", {})
        with model.ScriptedModel(script) as served:
            full = {
                "persona": "A customer.", "goal": "A medium red shirt.", "model": "gpt-5",
                "url": served.url, "key": "USER_API_KEY", "maxTurns": 4, **user,
            }  # fmt: skip
            path = prompts({"id": "shirt", "input": "A shirt.", "user": full, **row})
            done = assay("capture", path, "--shell", SHOP, *words)
            capture.asked = [request.last_user for request in served.requests]  # type: ignore[attr-defined]
        return done.rows[0], done.stderr

    return capture


def test_a_script_is_exact_and_its_words_stand_apart(
    assay: Callable, prompts: Callable, tmp_path: Path
) -> None:
    path = prompts({"id": "a", "input": "A shirt.", "user": REPLIES, "expect": {"contains": "Ord"}})
    done = assay("trials", path, "--shell", SHOP, "-k", 2, "-o", "t.jsonl")
    assert done.code == 0, done.stderr
    [row] = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert row["input"] == "A shirt."
    assert row["passRate"] == 1
    for trial in row["trials"]:
        assert trial["output"] == "Ordered."
        assert trial["simulatedUser"] == {"said": ["Medium.", "red"], "ended": "no reply"}
    exported = assay("export", "sft", "t.jsonl")
    first, *_ = exported.rows
    said = [one["content"] for one in first["messages"] if one["role"] == "user"]
    assert said == ["A shirt.", "Medium.", "red"]
    grader = tmp_path / "asked.py"
    grader.write_text("def grade(input):\n    return input == ['A shirt.', 'Medium.', 'red']\n")
    assert "2 of 2" in assay("grade", "t.jsonl", "-g", grader, "-o", "g.jsonl").stderr
    assert "red" in assay("summarize", "t.jsonl", "-m").stdout


def test_extract_and_another_run_of_the_rows_give_the_same(
    assay: Callable, prompts: Callable, tmp_path: Path
) -> None:
    path = prompts({"id": "a", "input": "A shirt.", "user": REPLIES})
    simple = tmp_path / "shop.sh"
    simple.write_text(f"PROMPT=$1\n{SHOP}\n")
    command = f"sh {shlex.quote(str(simple))} {{}}"
    assert assay("run", path, "--simple", command, "-o", "raw.jsonl").code == 0
    [again] = assay("extract", "raw.jsonl").rows
    [row] = assay("capture", path, "--simple", command).rows
    assert again["simulatedUser"] == row["simulatedUser"]
    assert [step["turn"] for step in again["trajectory"]] == [1, 2, 3]
    assert row["metadata"]["turnCount"] == again["metadata"]["turnCount"] == 3
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    assert assay("capture", "rows.jsonl", "--simple", command).rows[0]["output"] == "Ordered."


def test_an_agent_with_sessions_and_one_with_a_dialogue_are_answered(
    assay: Callable, prompts: Callable, agent: Callable, tag: str, alive: Callable
) -> None:
    user = [{"when": "^What size", "say": "What colour"}, {"when": "colour", "say": "Red"}]
    path = prompts({"id": "a", "input": "What size", "user": user})
    [row] = assay("capture", path, "-s", agent()).rows
    assert row["output"] == "Red"
    assert row["simulatedUser"]["said"] == ["What colour", "Red"]
    user = [{"when": r"What size.*1$|size", "say": "!do say Red"}]
    path = prompts({"id": "a", "input": "!do say What size", "user": user})
    done = assay("capture", path, "--", sys.executable, ACP, tag)
    [row] = done.rows
    assert "failure" not in row
    assert (row["output"], row["simulatedUser"]["ended"]) == ("Red", "no reply")
    assert alive() == []


def test_a_model_plays_the_user_and_its_cost_is_its_own(shop: Callable) -> None:
    row, said = shop(plays(say("Medium, please."), say("A red one."), say("")))
    assert row["output"] == "Ordered."
    assert "usage" not in row
    user = row["simulatedUser"]
    assert user["said"] == ["Medium, please.", "A red one."]
    assert (user["ended"], user["model"]) == ("stop", "gpt-5")
    assert user["usage"]["inputTokens"] == 3000
    assert user["usage"]["costUsd"] > 0
    assert f"${user['usage']['costUsd']:.4f}" in said
    assert "A customer." in shop.asked[0]
    assert re.search(r"BEGIN its answer (\w+)\nWhich size\?\nEND its answer \1\n", shop.asked[0])
    assert KEY not in json.dumps(row)


def test_at_max_turns_the_conversation_ends_and_is_graded(shop: Callable) -> None:
    row, _ = shop(plays(say("Hm.")), "-g", "contains:size", maxTurns=3)
    assert row["simulatedUser"]["said"] == ["Hm.", "Hm."]
    assert row["simulatedUser"]["ended"] == "maxTurns"
    assert row["score"]["pass"] is True


@pytest.mark.parametrize(
    ("said", "user", "why"),
    [
        ("As an AI, I have no size.", {}, "left its persona"),
        ("The code is XYZZY.", {"row": {"hint": "xyzzy"}}, "gave the answer away"),
        ("Order 4712.", {"facts": {"order": "4711"}}, r"\(4712 is none of them\)"),
        ("", {}, "said nothing and did not stop"),
        ("x" * 9000, {}, "more than 8000 characters"),
    ],
)
def test_what_the_user_itself_does_wrong_never_counts_against_the_agent(
    shop: Callable, said: str, user: dict[str, Any], why: str
) -> None:
    row, _ = shop(plays({"say": said, "stop": False}), "-g", "contains:no", **user)
    assert row["failure"]["cause"] == "user"
    assert re.search(why, row["failure"]["message"])
    assert "score" not in row
    assert row["simulatedUser"]["ended"] == "failed"
    assert row["output"] == "Which size?"


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (plays("Medium."), "not the JSON asked for"),
        (plays({"say": "x", "stop": False, "code": "0"}), "lacks the code"),
        ({**plays(""), "steps": [{"faults": [{"status": 401, "times": "always"}]}]}, "refuses the"),
    ],
)
def test_a_user_that_does_not_answer_is_a_cause_of_its_own(
    shop: Callable, script: dict[str, Any], why: str
) -> None:
    row, printed = shop(script)
    assert row["failure"]["cause"] == "user"
    assert why in row["failure"]["message"]
    assert "simulated user failed" in printed


def test_after_a_user_that_failed_nothing_keeps_the_agent_from_starting(
    prompts: Callable, assay: Callable
) -> None:
    with model.ScriptedModel(plays("no JSON")) as served:
        user = {"persona": "A customer.", "goal": "A shirt.", "model": "gpt-5", "key": "none"}
        path = prompts({"id": "a", "input": "A shirt.", "user": {**user, "url": served.url}})
        done = assay("capture", path, "--shell", SHOP, "-o", "u.jsonl")
    assert "simulated user failed in 1" in done.stderr
    assert "Next: the same command with --resume runs the trials" in done.stderr


def test_the_agent_does_not_get_the_key(assay: Callable, prompts: Callable) -> None:
    def seen(*words: Any) -> str:
        with model.ScriptedModel(plays(say(""))) as served:
            judge = f"judge:model=m,key=USER_API_KEY,url={served.url},rubric=r"
            script = 'echo "${USER_API_KEY:-none}"'
            done = assay("capture", prompts("x"), "--shell", script, "-g", judge, *words)
            assert KEY not in done.stdout + done.stderr
            return done.rows[0]["output"] + done.stderr

    assert seen().startswith("none")
    assert "USER_API_KEY is the key of a judge" in seen()
    assert seen("--isolate").startswith("none")
    assert not seen("--env", "USER_API_KEY").startswith("none")  # the user's own wish


def test_the_budget_counts_what_judges_cost(prompts: Callable, assay: Callable) -> None:
    verdict = json.dumps({"pass": True, "score": 1, "reasoning": ""})
    usage = {"input": 1_000_000, "output": 10}
    steps = [{"text": verdict, "usage": usage}]
    with model.ScriptedModel({"toolless": "step", "steps": steps}) as served:
        judge = f"judge:model=gpt-5,cache=false,key=none,url={served.url},rubric=r"
        words = ("--shell", "echo x", "-g", judge, "--max-cost", "2")
        done = assay("capture", prompts(*"abcde"), *words)
        assert len(served.requests) == 2, done.stderr


@pytest.mark.parametrize(
    ("user", "why"),
    [
        ([], "neither replies nor a model"),
        ([{"when": "(a", "say": "b"}], r"\[0\].when"),
        ([{"when": r"(a)\1", "say": "b"}], r"\[0\].when"),
        ([{"when": "a", "say": " "}], r"\[0\].say"),
        ({"persona": "p"}, "neither replies nor a model"),
        ({"model": "m"}, "no persona and no goal"),
        ({"model": "m", "goal": "g", "maxTurns": 1}, "can say nothing"),
        ({"model": "m", "goal": "g", "replies": REPLIES}, "both a model and replies"),
    ],
)
def test_a_user_who_could_say_nothing_is_refused(user: Any, why: str) -> None:
    prompt = msgspec.convert({"id": "a", "input": "x", "user": user}, Prompt)
    with pytest.raises(InputError, match=why):
        check_prompt(prompt, "p.jsonl:1", {})


def test_an_answer_cannot_make_a_script_slow(assay: Callable, prompts: Callable) -> None:
    user = [{"when": "(a+)+$", "say": "b"}]
    path = prompts({"id": "a", "input": "x", "user": user})
    [row] = assay("capture", path, "--shell", f"echo {'a' * 5000}b").rows
    assert row["simulatedUser"]["ended"] == "no reply"


def test_an_answer_that_takes_too_much_work_is_no_excuse() -> None:
    """It took the trial out of the measurement, with the cause `user`."""
    replies = [Reply(when="(a|b)*a(a|b){400}c", say="b")]
    user = ScriptedUser(
        Prompt(id="a", input="x", user=User(replies=replies)), User(replies=replies)
    )
    noise = "".join(random.Random(1).choices("ab", k=20_000))
    assert user([("x", noise)]) is None
    recorded = user.recorded(Recording(start_ms=0, end_ms=0), Prompt(id="a", input="x"))
    assert recorded.user is not None
    assert recorded.user.ended == "no reply"


def test_the_user_is_part_of_what_a_trial_was_made_from(assay: Callable, prompts: Callable) -> None:
    def spec_hash(**more: Any) -> str:
        path = prompts({"id": "a", "input": "A shirt.", **more})
        return assay("capture", path, "--shell", SHOP).rows[0]["specHash"]

    assert len({spec_hash(), spec_hash(user=REPLIES), spec_hash(user=REPLIES[:1])}) == 3


def test_a_trial_elsewhere_gets_the_key_of_its_user_and_the_agent_does_not(tmp_path: Path) -> None:
    user = User(goal="g", model="m", url="http://127.0.0.1:1", key="USER_API_KEY")
    around = Surroundings(cwd=str(tmp_path), hidden_env=("USER_API_KEY",))
    spec = TrialSpec(
        prompt=Prompt(id="a", input="x", user=user),
        agent=PluginRef(name="shell", options={"template": "env"}),
        benchmark=PluginRef(name="prompts"),
        limits=Limits(),
        surroundings=around,
        folder="a",
    )
    assert named_variables(spec) == {"USER_API_KEY": KEY}


def rule(words: str, **user: Any) -> str:
    prompt = Prompt(
        id="a", input="What is it?", hint="Paris", expect=Expect(contains=["Seine", "no"])
    )
    return broken_rule(words, prompt, User(goal="g", **user), [("What is it?", "In Lyon, 7 a.m.?")])


@pytest.mark.parametrize(
    "words",
    [
        "Is it Lyon?",
        "no idea",  # too short to be an answer that was given away
        "I live in Parisville.",
        "Ada, 4711.",
        "There are 3 of us.",
        "My order is not 1.",
        "My order is late, and my name is unimportant.",
        "order: 4711, please",
        "Can you help me?",
        "You did not follow my instructions.",
    ],
)
def test_what_users_say_is_let_through(words: str) -> None:
    assert rule(words, facts={"name": "Ada", "order": "4711"}) == ""


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("It is paris!", "gave the answer away"),
        ("On the Seine.", "gave the answer away"),
        ("How can I help you today?", "left its persona"),
        ("I'm an AI model.", "left its persona"),
        ("My name is Bob.", "name is Ada"),
        ("My order is 99-88.", "order is 4711"),
        ("Call 555-0100.", "555-0100 is none"),
    ],
)
def test_what_breaks_a_rule_is_named(words: str, why: str) -> None:
    assert why in rule(words, facts={"name": "Ada", "order": "4711"})


def test_what_the_user_was_told_is_no_secret() -> None:
    assert rule("Paris it is", facts={"city": "Paris"}) == ""


def test_the_cause_does_not_measure_the_agent() -> None:
    assert not Cause.USER.measures_agent
    assert Cause.USER.words == "simulated user failed"
