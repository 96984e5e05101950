"""Tapes on the command line: a small agent with tools, recorded and replayed without its model."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.records.tape import Tape
from assay.testing.model import ScriptedModel

AGENT = """\
import http.client, json, os, subprocess, sys, urllib.parse
url = urllib.parse.urlsplit(os.environ["OPENAI_BASE_URL"])
said = f"{sys.argv[1]} In {os.getcwd()}, {os.environ['HOME']}, with {os.environ.get('A_TOKEN')}"
messages = [{"role": "user", "content": said}]
while True:
    link = http.client.HTTPConnection(url.hostname, url.port, timeout=20)
    tool = {"type": "function", "function": {"name": "bash", "parameters": {"type": "object",
            "properties": {"command": {"type": "string"}}}}}
    body = {"model": "m", "stream": True, "messages": messages, "tools": [tool]}
    key = {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    link.request("POST", url.path + "/chat/completions", json.dumps(body), key)
    try:
        answer = link.getresponse()
        data = answer.read().decode()
    except Exception as error:
        sys.exit(f"cut: {type(error).__name__}")
    if answer.status != 200:
        sys.exit(f"status {answer.status}")
    text, calls = "", {}
    for line in data.splitlines():
        for choice in json.loads(line[6:])["choices"] if line.startswith("data: {") else ():
            delta = choice["delta"]
            text += delta.get("content") or ""
            for part in delta.get("tool_calls") or ():
                one = calls.setdefault(part["index"], ["", "", ""])
                one[0] = part.get("id") or one[0]
                one[1] += part["function"].get("name") or ""
                one[2] += part["function"].get("arguments") or ""
    if not calls:
        print(text)
        break
    made = [{"id": i, "type": "function", "function": {"name": n, "arguments": a}}
            for i, n, a in calls.values()]
    messages.append({"role": "assistant", "content": text, "tool_calls": made})
    for i, _, a in calls.values():
        out = subprocess.run(json.loads(a)["command"], shell=True, capture_output=True, text=True)
        messages.append({"role": "tool", "tool_call_id": i, "content": out.stdout})
"""
KEY = "sk-0123456789abcdef-the-key"
TOKEN = "the-t0ken-of-this-test-77"
SCRIPT = {
    "steps": [
        {"text": "I look.", "calls": [{"tool": "shell", "command": "date +%N; echo $A_TOKEN"}]},
        {"text": "It was {{last_tool_result}}."},
    ]
}
Assay = Callable[..., Any]


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel(SCRIPT) as served:
        yield served


@pytest.fixture
def run(assay: Assay, tmp_path: Path) -> Assay:
    """Run `assay trials` with the agent in a folder of its own; return its outcome and its rows."""
    (tmp_path / "agent.py").write_text(AGENT)
    agent = f"{sys.executable} -IS {tmp_path / 'agent.py'} {{}}"

    def trials(
        place: str, *args: Any, url: str = "http://127.0.0.1:9", said: str = "Do it.", k: int = 1
    ) -> tuple[Any, list[dict[str, Any]]]:
        folder = tmp_path / place
        folder.mkdir(parents=True)
        (folder / "p.jsonl").write_text(json.dumps({"id": "p", "input": said}) + "\n")
        env = {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": KEY, "A_TOKEN": TOKEN}
        done = assay(
            "trials", "p.jsonl", "--simple", agent, "-k", k, "-o", "o.jsonl", *args,
            cwd=folder, env={**env, "HOME": str(folder)},
        )  # fmt: skip
        out = folder / "o.jsonl"
        return done, json.loads(out.read_text())["trials"] if out.exists() else []

    return trials


def text_of(tape: Path) -> str:
    with Tape(tape) as opened:
        return str([*opened.lanes, *opened.exchanges()])


def test_a_tape_answers_in_another_folder_without_the_model(
    run: Assay, model: ScriptedModel, tmp_path: Path
) -> None:
    tape = tmp_path / "a.tape"
    done, recorded = run("one", "--record", tape, url=model.url, k=2)
    assert done.code == 0, done
    assert [trial["wire"]["requests"] for trial in recorded] == [2, 2]
    assert "replay" not in recorded[0]
    n_asked = len(model.requests)
    done, replayed = run("other/place", "--replay", tape, k=2)
    assert done.code == 0, done
    assert "this checks the harness, not the agent" in done.stderr
    assert len(model.requests) == n_asked
    for before, after in zip(recorded, replayed, strict=True):
        # Each trial is answered what it was answered: not all of them what one was.
        assert before["output"] == after["output"]
        assert after["replay"]["hits"] == 2
        (differs,) = after["replay"]["differs"]
        assert (differs["call"], differs["recorded"] != differs["now"]) == (1, True)
    assert recorded[0]["output"] != recorded[1]["output"]


def test_no_secret_is_on_the_tape(run: Assay, model: ScriptedModel, tmp_path: Path) -> None:
    tape = tmp_path / "a.tape"
    run("one", "--record", tape, url=model.url, said=f"My key is sk-{'k9' * 10}.")
    assert TOKEN in model.requests[0].last_user  # the model got it
    text = text_of(tape)
    for secret in (KEY, TOKEN, "k9k9", str(tmp_path)):
        assert secret not in text
    assert "<assay:folder>" in text
    done, (trial,) = run("two", "--replay", tape, said=f"My key is sk-{'k9' * 10}.")
    assert (done.code, trial["replay"]["hits"]) == (0, 2)


def test_what_the_tape_lacks_is_named_and_no_failure_of_the_agent(
    run: Assay, model: ScriptedModel, tmp_path: Path
) -> None:
    tape = tmp_path / "a.tape"
    run("one", "--record", tape, url=model.url)
    done, (trial,) = run("two", "--replay", tape, said="Do that.")
    assert done.code == 1
    failure = trial["failure"]
    assert failure["cause"] == "tape"
    assert failure["message"].startswith("the tape has no answer: the prompt is another one")
    assert ("'Do it.'" in failure["message"], "'Do that.'" in failure["message"]) == (True, True)
    agent = tmp_path / "agent.py"
    agent.write_text(AGENT.replace('"model": "m"', '"model": "n"'))
    done, (trial,) = run("three", "--replay", tape)
    said = "request 1 differs from exchange 1 at model: recorded 'm', now 'n'"
    assert said in trial["failure"]["message"]
    done, trials = run("four", "--replay", tape, k=2)
    assert "trial 2; of this prompt it has trial 1" in trials[1]["failure"]["message"]


def test_misses_can_be_recorded(run: Assay, model: ScriptedModel, tmp_path: Path) -> None:
    tape = tmp_path / "a.tape"
    run("one", "--record", tape, url=model.url)
    n_asked = len(model.requests)
    done, trials = run("two", "--replay", tape, "--record-misses", url=model.url, k=2)
    assert done.code == 0, done
    assert len(model.requests) == n_asked + 2
    assert [trial["replay"].get("hits", 0) for trial in trials] == [2, 0]
    done, trials = run("three", "--replay", tape, k=2)
    assert [trial["replay"]["hits"] for trial in trials] == [2, 2]


def test_errors_and_answers_that_were_cut_off_are_replayed(run: Assay, tmp_path: Path) -> None:
    steps = [{"text": "no", "faults": [{"status": 503, "message": "busy"}]}]
    cut = [{"text": "a long text in pieces", "chunks": 5, "faults": [
        {"drop": True, "afterEvents": 2}]}]  # fmt: skip
    for name, given, said in (("busy", steps, "status 503"), ("cut", cut, "cut: IncompleteRead")):
        tape = tmp_path / f"{name}.tape"
        with ScriptedModel({"steps": given}) as model:
            _, (before,) = run(f"{name}-1", "--record", tape, url=model.url)
        _, (after,) = run(f"{name}-2", "--replay", tape)
        assert said in before["stderr"], before
        assert before["stderr"] == after["stderr"]


def test_the_pace_is_that_of_the_recording_or_none(run: Assay, tmp_path: Path) -> None:
    tape = tmp_path / "a.tape"
    slow = {"steps": [{"text": "a b c", "chunks": 3, "chunkDelayS": 0.3}]}
    with ScriptedModel(slow) as model:
        run("one", "--record", tape, url=model.url)
    _, (at_once,) = run("two", "--replay", tape)
    _, (as_it_was,) = run("three", "--replay", tape, "--pace", "1")
    assert as_it_was["duration"] > at_once["duration"] + 400


def test_two_runs_cannot_record_one_tape(
    run: Assay, start: Assay, model: ScriptedModel, tmp_path: Path
) -> None:
    tape = tmp_path / "a.tape"
    (tmp_path / "p.jsonl").write_text('{"id": "p", "input": "x"}\n')
    words = [
        "capture",
        "p.jsonl",
        "--record",
        tape,
        "-o",
        "first.jsonl",
        "--shell",
        "sleep 20 # $PROMPT",
    ]
    first = start(*words)
    try:
        until_s = time.monotonic() + 20
        while not tape.exists() and time.monotonic() < until_s:
            time.sleep(0.02)
        done, _ = run("two", "--record", tape, url=model.url)
        assert done.code == 1
        assert "is being written by another assay process" in done.stderr
        assert not model.requests
    finally:
        first.terminate()
        first.communicate()


def test_faults_hit_the_same_requests_in_every_run(
    run: Assay, model: ScriptedModel, tmp_path: Path
) -> None:
    found = []
    for name in ("one", "two"):
        _, trials = run(name, "--fault", "429:0.3", url=model.url, k=6)
        found.append(["failure" in trial for trial in trials])
        assert {trial["stderr"] for trial in trials if "stderr" in trial} == {"status 429"}
        assert all("replay" not in trial for trial in trials)
    assert found[0] == found[1]
    assert len({*found[0]}) == 2
    _, (trial,) = run("three", "--fault", "cut:1", url=model.url)
    assert "cut: " in trial["stderr"]
    _, (trial,) = run("four", "--fault", "slow:0.3s", url=model.url)
    assert trial["duration"] > 600


def test_replayed_runs_have_no_verdict_unless_allowed(
    run: Assay, assay: Assay, model: ScriptedModel, tmp_path: Path
) -> None:
    tape = tmp_path / "a.tape"
    grade = ("-g", "contains:It was")
    run("one", "--record", tape, *grade, url=model.url)
    run("two", "--replay", tape, *grade)
    files = (tmp_path / "one/o.jsonl", tmp_path / "two/o.jsonl")
    gate = ("compare", *files, "--fail-on", "regression", "--margin", "0.5")
    done = assay(*gate)
    assert done.code == 4, done
    assert "replayed: this checks the harness, not the agent" in done.stdout
    allowed = assay(*gate, "--allow-replayed")
    assert "is unhealthy" not in allowed.stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--record", "a", "--replay", "p.jsonl"), "cannot be used together"),
        (("--record-misses",), "--record-misses needs --replay"),
        (("--pace", "1"), "--pace needs --replay"),
        (("--fault", "429:7"), "is no fault such as"),
        (("--replay", "p.jsonl"), "p.jsonl is no tape"),
        (("--replay", "missing"), "does not exist"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_runs(
    run: Assay, args: tuple[str, ...], said: str
) -> None:
    done, trials = run("one", *args)
    assert done.code in (1, 2), done
    assert said in " ".join(done.stderr.split())
    assert trials == []


def test_an_agent_that_does_not_ask_the_proxy_is_said_so(
    run: Assay, assay: Assay, tmp_path: Path
) -> None:
    (tmp_path / "p.jsonl").write_text('{"id": "p", "input": "x"}\n')
    assay("capture", "p.jsonl", "--simple", "echo {}", "--record", "a.tape", "-o", "o.jsonl")
    row = json.loads((tmp_path / "o.jsonl").read_text())
    assert row["warnings"] == [
        "no request to a model passed the proxy: the agent does not use its base URL"
    ]


def test_what_an_agent_says_of_its_provider_is_compared_with_what_was_seen(
    assay: Assay, tmp_path: Path
) -> None:
    schema = {
        "version": 1, "name": "counts", "sessionMode": "stream", "prompt": {"flag": "-p"},
        "command": [sys.executable, "-IS", str(tmp_path / "agent.py")],
        "output": {"flag": "", "value": ""}, "outputEvents": [],
        "result": {"matchPath": "$.type", "matchValue": "result", "contentPath": "$.result"},
        "usage": [{"match": {"path": "$.type", "value": "result"},
                   "inputTokens": "$.in", "outputTokens": "$.out"}],
    }  # fmt: skip
    agent = """\
import json, os, sys, urllib.request
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
body = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
head = {"content-type": "application/json"}
asked = urllib.request.Request(url, json.dumps(body).encode(), head)
used = json.load(urllib.request.urlopen(asked))["usage"]
more = int(os.environ["MORE"])
print(json.dumps({"type": "result", "result": "ok", "in": used["prompt_tokens"] + more,
                  "out": used["completion_tokens"]}))
"""
    (tmp_path / "agent.py").write_text(agent)
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    (tmp_path / "p.jsonl").write_text('{"id": "p", "input": "x"}\n')
    rows = []
    step = {"text": "a", "usage": {"input": 1000, "output": 9}}
    with ScriptedModel({"steps": [step], "toolless": "step"}) as model:
        env = {"OPENAI_BASE_URL": f"{model.url}/v1", "OPENAI_API_KEY": KEY}
        for more in (0, 10, 30):
            out = tmp_path / f"{more}.jsonl"
            done = assay(
                "capture", "p.jsonl", "-s", "schema.json", "--record", "a.tape", "-o", out,
                "-g", "contains:ok", env={**env, "MORE": str(more)},
            )  # fmt: skip
            assert done.code == 0, done
            rows.append(json.loads(out.read_text()))
    assert [row["wire"].get("differs") for row in rows] == [
        None,
        [{"what": "inputTokens", "agent": 1010, "seen": 1000}],
        [{"what": "inputTokens", "agent": 1030, "seen": 1000}],
    ]
    said = "counts other input tokens than its provider (more than 2 % apart) in 1 of 1 trial"
    assert said not in assay("compare", "0.jsonl", "10.jsonl").stdout
    assert said in " ".join(assay("compare", "0.jsonl", "30.jsonl").stdout.split())


VERDICT = '{"code": "{{judge_code}}", "pass": true, "score": 0.75, "reasoning": "as it should be"}'


def test_judges_are_recorded_and_replayed_with_a_run_and_by_grade(
    assay: Assay, tmp_path: Path
) -> None:
    def judged(url: str, rubric: str = "Is it polite?") -> tuple[str, str]:
        return "-g", f"judge:model=judge-model,url={url}/v1,rubric={rubric}"

    (tmp_path / "p.jsonl").write_text('{"id": "p", "input": "x"}\n')
    run = ("trials", "p.jsonl", "--simple", "echo 'Good day {}'", "-k", 2)
    grade = ("grade", "one.jsonl", "-o")
    with ScriptedModel({"steps": [{"text": VERDICT, "chunks": 9}], "toolless": "step"}) as model:
        judge, env = judged(model.url), {"OPENAI_API_KEY": KEY}
        done = assay(*run, *judge, "--record", "a.tape", "-o", "one.jsonl", env=env)
        assert done.code == 0, done
        assert len(model.requests) == 2  # although a verdict on the same answer could be kept
        done = assay(*grade, "g.jsonl", *judge, "--record", "b.tape", env=env)
        assert done.code == 0, done
        assert len(model.requests) == 4
    elsewhere = judged("http://127.0.0.1:9")
    for words in (
        (*run, *elsewhere, "--replay", "a.tape", "-o", "two.jsonl"),
        (*grade, "three.jsonl", *elsewhere, "--replay", "b.tape"),
    ):
        done = assay(*words)
        assert done.code == 0, done
        (row,) = map(json.loads, (tmp_path / words[words.index("-o") + 1]).read_text().splitlines())
        assert [trial["score"] for trial in row["trials"]] == [0.75, 0.75]
        used = row["trials"][0]["grades"]["judge"]["usage"]
        assert used.get("costSource", "recorded") == "recorded"
    assert KEY not in text_of(tmp_path / "a.tape")
    other = judged("http://127.0.0.1:9", "Is it short?")
    done = assay(*grade, "four.jsonl", *other, "--replay", "b.tape")
    (row,) = map(json.loads, (tmp_path / "four.jsonl").read_text().splitlines())
    assert "score" not in row["trials"][0]
    why = row["trials"][0]["graderFailures"]["judge"]
    assert "no such question to a judge was recorded" in why
    assert ("polite?" in why, "short?" in why) == (True, True)
