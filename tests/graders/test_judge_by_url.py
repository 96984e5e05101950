"""judge: a model by its URL; what servers do wrong is never a verdict, and the key stays ours."""

import json
import re
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from assay import plugins
from assay.errors import InputError, PluginError
from assay.pipeline.limiter import provider_of
from assay.pipeline.stages import AskingHost, asking_spec
from assay.plugin import Trial
from assay.records.capture import Grade
from assay.records.spec import PluginRef
from assay.run import http
from assay.testing import model

KEY = "sk-a-key-that-nobody-else-may-see"
VERDICT = {"pass": True, "score": 0.75, "reasoning": "fine"}


@pytest.fixture(autouse=True)
def own_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.setenv(name, KEY)
    monkeypatch.setattr(AskingHost.limiter, "longest_s", 0.01)


def answering(verdict: Any = VERDICT, **step: Any) -> dict[str, Any]:
    """A model that always gives this answer."""
    text = verdict if isinstance(verdict, str) else json.dumps(verdict)
    usage = {"input": 1000, "output": 100, "cacheRead": 200}
    return {"toolless": "step", "steps": [{"text": text, "usage": usage, **step}]}


def judged(url: str, output: str = "hello", **options: Any) -> Grade:
    given = {"rubric": "Is it kind?", "model": "gpt-5", "url": url, **options}
    timeout_s = given.pop("timeout_s", 10.0)
    grader = plugins.grader(plugins.grader_ref(f"judge:{json.dumps(given)}", timeout_s))
    return grader.grade(Trial(input="Greet me.", output=output), AskingHost())


@pytest.mark.parametrize(
    ("name", "path", "header"),
    [
        ("gpt-5", "/v1/chat/completions", "authorization"),
        ("anthropic:claude-sonnet-4-5", "/v1/messages", "x-api-key"),
        (
            "gemini:gemini-2.5-pro",
            "/v1beta/models/gemini-2.5-pro:generateContent",
            "x-goog-api-key",
        ),
    ],
)
def test_three_formats_give_the_verdict_and_its_cost(name: str, path: str, header: str) -> None:
    with model.ScriptedModel(answering()) as served:
        grade = judged(served.url, model=name)
        [request] = served.requests
    assert (grade.pass_, grade.score, grade.reasoning) == (True, 0.75, "fine")
    assert grade.usage
    assert (grade.usage.input_tokens, grade.usage.cache_read_tokens) == (1000, 200)
    assert grade.usage.output_tokens == 100
    assert grade.usage.cost_usd
    assert grade.usage.cost_source == "estimated"
    assert request.path == path
    assert header in request.headers
    assert request.model == name.partition(":")[2] or name


@pytest.mark.parametrize("end", ["", "/v1", "/v1/chat/completions"])
def test_a_url_may_end_where_clients_of_the_format_let_it_end(end: str) -> None:
    with model.ScriptedModel(answering()) as served:
        judged(served.url + end)
        assert served.requests[0].path == "/v1/chat/completions"


def test_each_criterion_has_a_verdict_with_its_quotation() -> None:
    criteria = [
        {"criterion": 2, "pass": False, "quote": "never said", "reasoning": "No name."},
        {"criterion": 1, "pass": True, "quote": "Hello  there", "reasoning": "It greets."},
    ]
    with model.ScriptedModel(answering({"criteria": criteria})) as served:
        asked = {"criterion": ["It greets.", "It says my name."], "rubric": ""}
        grade = judged(served.url, "hello\nthere", **asked)
        assert judged(served.url, "hello there", threshold=0.5, **asked).pass_
    assert (grade.pass_, grade.score) == (False, 0.5)
    assert grade.outcome
    first, second = grade.outcome["criteria"]
    assert (first["criterion"], first["pass"], first["quoteFound"]) == ("It greets.", True, True)
    assert (second["criterion"], second["pass"]) == ("It says my name.", False)
    assert second["quoteFound"] is False


@pytest.mark.parametrize("numbers", [[1], [1, 1], [1, 2, 3], [0, 1]])
def test_a_criterion_that_is_left_out_or_judged_twice_is_no_verdict(numbers: list[int]) -> None:
    said = [{"criterion": n, "pass": True, "reasoning": ""} for n in numbers]
    with (
        model.ScriptedModel(answering({"criteria": said})) as served,
        pytest.raises(PluginError, match="criteria 1 to 2"),
    ):
        judged(served.url, criterion=["a", "b"])


def fault(status: int, **more: Any) -> dict[str, Any]:
    return {"faults": [{"status": status, "times": "always", **more}]}


@pytest.mark.parametrize(
    ("step", "why"),
    [
        ({"stop": "length"}, "cut off at the limit of tokens; max_tokens"),
        ({"stop": "refusal"}, "the model refused to answer"),
        ({"text": ""}, "the model answered nothing"),
        ({"text": "Yes, it is kind."}, "not the JSON asked for"),
        (fault(429, message="Slow down."), "status 429: Slow down."),
        (fault(503), "status 503"),
        (fault(401, message=f"Wrong key {KEY}"), r"auth: .* refuses the key in OPENAI_API_KEY"),
        (fault(400, message="no such model"), "status 400: no such model"),
        (fault(200, body="<html>"), "not the JSON of a model"),
        (
            fault(307, headers={"location": "http://u:p@127.0.0.1:9/else?k=v"}),
            "redirects to http://127.0.0.1:9/else, which is not followed",
        ),
        ({"faults": [{"drop": True, "times": "always"}]}, "ended the connection before"),
        (
            {"faults": [{"drop": True, "afterEvents": 1, "times": "always"}]},
            "ended the connection before",
        ),
    ],
)
@pytest.mark.parametrize("kind", ["openai", "anthropic", "gemini"])
def test_what_is_no_answer_is_no_verdict_and_says_why(
    kind: str, step: dict[str, Any], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with model.ScriptedModel(answering(**{"text": json.dumps(VERDICT), **step})) as served:
        with pytest.raises(PluginError, match="judge") as raised:
            judged(served.url, model=f"{kind}:m")
        n_asked = len(served.requests)
    assert re.search(why.replace("OPENAI", kind.upper()), raised.value.message)
    assert KEY not in raised.value.message
    retried = any(word in why for word in ("429", "503", "ended"))
    assert n_asked == (5 if retried else 1)


def test_a_refusal_that_passes_is_asked_again() -> None:
    again = {"faults": [{"status": 429, "headers": {"retry-after": "1"}}, {"status": 502}]}
    with model.ScriptedModel(answering(**again)) as served:
        assert judged(served.url).score == 0.75
        assert len(served.requests) == 3


def test_a_slow_answer_is_ended_by_the_time_limit() -> None:
    hanging = {"faults": [{"hang": True, "times": "always"}]}
    with (
        model.ScriptedModel(answering(**hanging)) as served,
        pytest.raises(PluginError, match=r"gave no whole answer within 0\.3 s"),
    ):
        judged(served.url, timeout_s=0.3)


def test_a_giant_answer_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MOST_BYTES", 1 << 20)
    with (
        model.ScriptedModel(answering("x" * (1 << 20))) as served,
        pytest.raises(PluginError, match="more than 1 MB"),
    ):
        judged(served.url)


def served_bytes(data: bytes) -> str:
    """Serve one connection with these bytes; return the URL."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with listening, listening.accept()[0] as one:
            one.recv(65536)
            one.sendall(data)

    threading.Thread(target=serve, daemon=True).start()
    return f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize(
    ("scheme", "data", "why"),
    [
        ("https", b"HTTP/1.1 400 Bad Request\r\n\r\n", "no encrypted connection to"),
        ("http", b"SSH-2.0-OpenSSH_9.6\r\n", "does not answer as HTTP does"),
    ],
)
def test_a_server_of_another_kind_is_no_judge(scheme: str, data: bytes, why: str) -> None:
    with pytest.raises(PluginError, match=why):
        judged(f"{scheme}://{served_bytes(data)}/v1")


def test_where_nothing_listens_the_address_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(PluginError, match=f"nothing answers at 127.0.0.1:{port}"):
        judged(f"http://127.0.0.1:{port}/v1")


def test_the_same_content_is_judged_and_paid_for_once(tmp_path: Path) -> None:
    with model.ScriptedModel(answering()) as served:
        first, again = judged(served.url), judged(served.url)
        assert first.usage
        assert again.usage
        assert (again.pass_, again.score) == (first.pass_, first.score)
        assert (first.usage.spent_usd > 0, again.usage.spent_usd) == (True, 0)
        assert len(served.requests) == 1
        for other in ({"output": "bye"}, {"rubric": "Is it short?"}, {"model": "gpt-5-mini"}):
            judged(served.url, **other)
        judged(served.url, cache=False)
        assert len(served.requests) == 5
        # What an agent puts there is none of our verdicts.
        for kept in (tmp_path / ".cache/assay/verdicts").iterdir():
            assert kept.stat().st_mode & 0o077 == 0
            assert KEY.encode() not in kept.read_bytes()
            kept.write_bytes(kept.read_bytes().replace(b'"score":0.75', b'"score":1.00'))
        assert judged(served.url).score == 0.75
        assert len(served.requests) == 6


def test_a_verdict_that_is_none_is_not_kept() -> None:
    with model.ScriptedModel(answering("no JSON")) as served:
        for _ in range(2):
            with pytest.raises(PluginError):
                judged(served.url)
        assert len(served.requests) == 2


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"url": "http://u:secret@127.0.0.1/v1"}, "has a login in it"),
        ({"url": "127.0.0.1:8000"}, "not the base URL"),
        ({"url": "file:///etc/passwd"}, "not the base URL"),
        ({"url": "http://127.0.0.1/v1?key=secret"}, "not the base URL"),
        ({"url": "http://model.example/v1", "key": "OPENAI_API_KEY"}, "as everybody can read it"),
        ({"url": "", "key": "SHELL"}, "no variable that holds a key"),
        ({"url": "", "key": "OTHER_API_KEY"}, "OTHER_API_KEY is not set"),
        ({"agent": "claude"}, "url is for a model by its URL"),
        ({"model": None}, "neither an agent nor a model"),
        ({"model": "anthropic:"}, "needs the name of the model"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_asked(
    options: dict[str, Any], why: str
) -> None:
    with pytest.raises(InputError, match=why) as raised:
        judged(**{"url": "http://127.0.0.1:1", **options})
    assert "secret" not in raised.value.message


def test_a_key_of_the_standard_variable_is_not_sent_unencrypted_to_another_machine() -> None:
    ref = plugins.grader(
        plugins.grader_ref("judge:model=m,url=http://model.example/v1,rubric=r")
    ).asks
    assert ref is not None
    adapter: Any = plugins.adapter(ref)
    assert adapter.request("?").key_variable == ""


def test_the_version_knows_model_and_url_and_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_API_KEY", "another key of the user")

    def version(**options: Any) -> str:
        given = {"rubric": "r", "model": "m", "url": "http://127.0.0.1:1/v1", **options}
        return plugins.grader(plugins.grader_ref(f"judge:{json.dumps(given)}")).version

    same = version()
    assert version(key="JUDGE_API_KEY") == same
    assert version(timeout_s=3.0, cache=False) == same
    for other in (
        {"model": "n"},
        {"model": "anthropic:m"},
        {"url": "http://127.0.0.1:2/v1"},
        {"criterion": ["c"]},
        {"temperature": 0},
    ):
        assert version(**other) != same, other


def test_each_server_and_model_has_a_pace_of_its_own() -> None:
    def lane(**options: Any) -> tuple[str, str]:
        given = {"model": "m", "url": "http://127.0.0.1:1/v1", **options}
        return provider_of(asking_spec(PluginRef(name="model", options=given), "", "/"))

    assert lane() == ("127.0.0.1:1", "m")
    assert len({lane(), lane(url="http://127.0.0.1:2/v1"), lane(model="n")}) == 3


def test_a_model_by_its_url_is_no_agent(assay: Any, prompts: Any) -> None:
    done = assay("capture", prompts("x"), "-s", "model:model=m,url=http://127.0.0.1:1/v1")
    assert done.code == 1
    assert "a model by URL is no agent" in done.stderr


def test_grade_says_what_judges_cost(assay: Any, prompts: Any, tmp_path: Path) -> None:
    assert assay("capture", prompts("x", "y"), "--shell", "echo", "-o", "r.jsonl").code == 0
    with model.ScriptedModel(answering()) as served:
        judge = f"judge:model=gpt-5,rubric=r,url={served.url}"
        first = assay("grade", "r.jsonl", "-g", judge, "-o", "g.jsonl", "-j", 2)
        again = assay("grade", "g.jsonl", "-g", judge, "-o", "h.jsonl")
    assert "2 of 2 passed, $0.00" in first.stderr
    assert "for judges" in first.stderr
    assert "for judges" not in again.stderr
    row = json.loads((tmp_path / "h.jsonl").read_text().splitlines()[0])
    assert row["grades"]["judge"]["usage"]["costSource"] == "replayed"
    assert "usage" not in row["score"]
    assert KEY not in (tmp_path / "h.jsonl").read_text()
