"""The order of the stages: run | extract is capture, whatever the agent did."""

import json
import sys
import types
from collections.abc import Callable, Generator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay import plugins
from assay.adapters.declared import DeclaredAdapter
from assay.errors import OutputError
from assay.pipeline.extract import extract
from assay.pipeline.run import Batch, BatchProgress, execute
from assay.pipeline.stages import capture_attempt, extract_row
from assay.plugin import Reading
from assay.records.recording import RawLine, RawOutput, Recording, Turn, TurnEnd, raw_output
from assay.records.rows import decode_row, encode_row
from assay.records.spec import Limits, PluginRef, TrialSpec
from assay.run.trial import recorded

SCENARIOS: dict[str, Any] = {
    "plain": "hello",
    "steps": "!do think a ; say b ; plan x,y ; call 1 Read f ; wait 0.05 ; done 1 ok ; result r",
    "same tool twice": "!do call 1 Read a ; call 2 Read b ; done 2 x ; fail 1 y",
    "times": "!do wait 0.1 ; say a ; wait 0.15 ; say b",
    "no result": "!do say a ; noresult",
    "nothing": "!do noresult",
    "exit code": "!do say a ; err last words ; exit 7",
    "signal": "!do say a ; die 11",
    "timeout": "!do say a ; wait 60",
    "lingers": "!do say a ; result r ; wait 60",
    "unknown events": "!do event strange ; event stranger ; line 7 ; line not json ; line  ",
    "no last newline": '!do noresult ; raw {"type":"result","result":"x"}',
    "invalid utf-8": "!do hexa 7b2274797065223a226d657373616765222c2274657874223a22ff227d0a",
    "nul": "!do hexa 00000a",
    "surrogate": r'!do line {"type":"message","text":"\ud800"}',
    "nan": '!do line {"type":"message","text":"a","x":NaN}',
    "deep": "!do deep 50000",
    "oversized": "!do big 3",
    "many lines": "!do lines 5000 1000000",
    "turns": ["first", "!do resumed ; say b ; call 1 Read x ; done 1 y", "third"],
    "turns, last fails": ["first", "!do say b ; exit 3", "never"],
    "turns, blank lines": ["!do line  ; say a ; line  ", "!do line  ; say b"],
    "dollar": ["$& $1 $$ $` \\1 {{input}} {{output}}", "{{output}} $& said"],
}
LIMITS = Limits(turn_s=1.5, linger_s=0.3, term_s=1, line_bytes=2_000_000)


class Last(BatchProgress):
    """Keeps the trial that has finished last."""

    def finished(self, spec: TrialSpec, result: Any) -> None:
        self.trial = spec, result


def run(specs: list[TrialSpec], workers: int = 1, **how: Any) -> Generator[tuple[TrialSpec, Any]]:
    """Yield each trial with its result."""
    last = Last()
    with closing(execute(Batch(specs=specs, jobs=workers, **how), progress=last)) as results:
        for result in results:
            assert result is last.trial[1]
            yield last.trial


def both_ways(spec: TrialSpec) -> tuple[Any, Any]:
    """Read one and the same recording as capture does, and as run and extract do."""
    adapter = plugins.adapter(spec.agent)

    with recorded(spec) as recording:
        captured = extract(spec.prompt, recording, adapter)
        line = encode_row(raw_output(spec.prompt, recording), {})
        row, extra = decode_row("x:1", line, RawOutput)
        assert extra == {}
        return captured, extract_row(row, adapter, Path(spec.surroundings.raw_dir or "").parent)


@pytest.mark.parametrize(
    ("name", "mode"),
    [(name, "stream") for name in SCENARIOS]
    + [(name, "iterative") for name, text in SCENARIOS.items() if isinstance(text, list)],
)
def test_extract_of_run_is_capture(spec: Callable, name: str, mode: str) -> None:
    changed = {"sessionMode": mode, "terminal": {"graceMs": 300}}
    captured, extracted = both_ways(spec(SCENARIOS[name], LIMITS, schema=changed))
    assert msgspec.to_builtins(extracted) == msgspec.to_builtins(captured)
    assert msgspec.json.encode(extracted) == msgspec.json.encode(captured)


lines = st.lists(
    st.binary(max_size=30)
    | st.builds(
        lambda row: json.dumps(row).encode(),
        st.fixed_dictionaries(
            {"type": st.sampled_from(["message", "thought", "tool_call", "plan", "result", "odd"])},
            optional={
                name: st.none()
                | st.booleans()
                | st.floats()
                | st.text(max_size=5)
                | st.lists(st.integers(), max_size=2)
                for name in ("text", "id", "name", "status", "output", "result", "entries", "usage")
            },
        ),
    ),
    max_size=8,
)


@given(turns=st.lists(lines, min_size=1, max_size=3), end=st.sampled_from([0, 1, None]))
@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_no_line_can_break_extraction(spec: Callable, turns: list, end: int | None) -> None:
    trial = spec(["x"] * len(turns))
    adapter = plugins.adapter(trial.agent)
    recording = Recording(
        start_ms=0,
        end_ms=100,
        turns=tuple(
            Turn("x", TurnEnd(exit_code=end, end_ms=9), partial(_raw_lines, some)) for some in turns
        ),
    )
    captured = extract(trial.prompt, recording, adapter)
    row, _ = decode_row("x:1", encode_row(raw_output(trial.prompt, recording), {}), RawOutput)
    assert encode_row(extract_row(row, adapter, Path()), {}) == encode_row(captured, {})


def _raw_lines(some: list[bytes]) -> list[RawLine]:
    whole = b"\n".join(some).split(b"\n")
    return [RawLine(n, line) for n, line in enumerate(whole)]


def test_capture_and_run_are_the_same_work(spec: Callable) -> None:
    specs = [spec(f"text {n}") for n in range(6)]
    captures = {s.folder: c for s, c in run(specs, 3)}
    raws = {s.folder: r for s, r in run(specs, 3, raw_rows=True)}
    assert captures.keys() == raws.keys()
    for s in specs:
        captured, raw = captures[s.folder], raws[s.folder]
        again = extract_row(raw, plugins.adapter(s.agent), Path())
        assert again.output == captured.output == s.prompt.input
        assert again.spec_hash == captured.spec_hash == s.hash
        assert [type(step) for step in again.trajectory] == [
            type(step) for step in captured.trajectory
        ]


def test_closing_the_captures_ends_the_agents(spec: Callable, alive: Callable) -> None:
    specs = [spec("quick"), *(spec("!do deaf ; wait 300") for _ in range(3))]
    captures = run(specs, 4)
    assert next(captures)[1].output == "quick"
    captures.close()
    assert alive() == []


def test_a_trial_never_takes_the_run_down(spec: Callable, tmp_path: Path) -> None:
    gone = spec("x", surroundings={"cwd": str(tmp_path / "gone")})
    null = spec("a\0b")
    long = spec("x" * 3_000_000)
    good = spec("x")
    done = [c for _, c in run([gone, null, long, good])]
    causes = [c.failure.cause if c.failure else None for c in done]
    assert causes == ["spawn", "spawn", "spawn", None]
    assert "working folder not found" in done[0].failure.message
    assert all(c.errors == [c.failure.message] for c in done[:3])
    assert all(c.tool_errors and c.output == "" and c.trajectory == [] for c in done[:3])


@pytest.fixture
def surprised(monkeypatch: pytest.MonkeyPatch) -> Callable[[type[Exception]], None]:
    """Put a mistake into the work, or something to tell the operator."""

    def surprise(error: type[Exception]) -> None:
        def attempt(spec: TrialSpec, *more: Any) -> Any:
            if spec.prompt.input == "odd":
                raise error("never thought of this")
            return capture_attempt(spec, *more)

        monkeypatch.setattr("assay.pipeline.stages.capture_attempt", attempt)

    return surprise


def test_a_mistake_of_ours_costs_one_row_and_says_so(spec: Callable, surprised: Callable) -> None:
    surprised(LookupError)
    done = {s.prompt.input: c for s, c in run([spec(t) for t in ("a", "odd", "b")], 2)}
    assert (done["a"].output, done["b"].output) == ("a", "b")
    failure = done["odd"].failure
    assert (failure.cause, failure.message) == ("worker_lost", "LookupError: never thought of this")
    assert done["odd"].spec_hash


def test_what_the_operator_must_fix_ends_the_run_and_the_agents(
    spec: Callable, alive: Callable, surprised: Callable
) -> None:
    surprised(OutputError)
    specs = [spec("!do deaf ; wait 300"), spec("odd"), *(spec("x") for _ in range(3))]
    with pytest.raises(OutputError, match="never thought"):
        list(run(specs, 2))
    assert alive() == []


def test_an_adapter_that_breaks_on_one_recording_costs_one_row(
    spec: Callable, schema: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Brittle(DeclaredAdapter):
        def read(self, recording: Recording) -> Reading:
            for turn in recording.turns:
                assert turn.text != "odd", "never seen this"
            return super().read(recording)

    module = types.ModuleType("brittle_adapter")
    module.Brittle = Brittle
    monkeypatch.setitem(sys.modules, "brittle_adapter", module)
    monkeypatch.setitem(plugins.BUILT_IN["assay.adapters"], "brittle", "brittle_adapter:Brittle")
    ref = PluginRef(name="brittle", options={"schema": schema})
    specs = [msgspec.structs.replace(spec(text), agent=ref) for text in ("a", "odd", "b")]
    a, odd, b = (c for _, c in run(specs))
    assert (a.output, b.output) == ("a", "b")
    assert odd.failure.cause == "harness"
    assert "never seen this" in odd.failure.message
    assert odd.raw


def test_only_what_does_not_measure_the_agent_is_retried(
    spec: Callable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("assay.pipeline.steps._FIRST_PAUSE_S", 0.01)
    crash = spec("!do put tries x ; exit 3")
    missing = spec("x", schema={"command": ["/no/such/program"]})
    monkeypatch.setattr("assay.pipeline.run.check_program", lambda spec: None)  # gone since then
    crashed, lost = (c for _, c in run([crash, missing], retries=2))
    assert (tmp_path / "tries").read_text() == "x"
    assert crashed.retried is msgspec.UNSET
    assert [f.cause for f in lost.retried] == ["spawn", "spawn"]
    assert lost.failure.cause == "spawn"


def test_a_retry_that_succeeds_shows_what_went_before(
    spec: Callable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The provider fails once; both attempts keep their raw streams."""
    monkeypatch.setattr("assay.pipeline.steps._FIRST_PAUSE_S", 0.01)
    script = """
    if test -e once; then echo '{"type":"result","result":"ok"}'
    else touch once; echo '{"type":"error","message":"overloaded"}'; exit 1; fi"""
    errors = [{"match": {"path": "$.type", "value": "error"}, "cause": "provider"}]
    trial = spec("x", schema={"command": ["/bin/sh", "-c", script], "errors": errors})
    ((_, captured),) = run([trial], retries=3)
    assert captured.output == "ok"
    assert not captured.failure
    assert [(f.cause, f.message) for f in captured.retried] == [("provider", "overloaded")]
    first, second = sorted((tmp_path / "raw").iterdir(), key=lambda path: len(path.name))
    assert b"overloaded" in (first / "1.out").read_bytes()
    assert captured.raw == f"raw/{second.name}"
