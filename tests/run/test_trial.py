"""One trial: whose fault it is when something other than the agent breaks."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from assay import plugins
from assay.plugin import InputError, PluginRef
from assay.records.capture import Cause
from assay.records.spec import Limits
from assay.run.trial import recorded

ERRORS = {"KeyError": KeyError, "InputError": InputError, "OSError": OSError}


class Fragile:
    """A benchmark of somebody else, whose world breaks at a given moment."""

    def __init__(self, moment: str, error: str) -> None:
        self._moment, self._error = moment, error

    def reach(self, moment: str) -> Any:
        if moment == self._moment:
            raise ERRORS[self._error]("the board")
        return {}

    @contextmanager
    def world(self, *_: Any) -> Iterator[Any]:
        self.reach("open")
        yield FragileWorld(self)
        self.reach("close")


class FragileWorld(SimpleNamespace):
    def __init__(self, benchmark: Fragile) -> None:
        super().__init__(mcp_servers={}, evidence=lambda _last: benchmark.reach("evidence"))
        self._benchmark = benchmark

    @property
    def env(self) -> Any:
        return self._benchmark.reach("env")


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("moment", ["open", "env", "evidence", "close"])
def test_whatever_a_world_raises_is_the_worlds_failure(
    spec: Callable, monkeypatch: pytest.MonkeyPatch, moment: str, error: str
) -> None:
    monkeypatch.setitem(sys.modules, "fragile_benchmark", SimpleNamespace(Fragile=Fragile))
    monkeypatch.setitem(
        plugins.BUILT_IN["assay.benchmarks"], "fragile", "fragile_benchmark:Fragile"
    )
    options = {"moment": moment, "error": error}
    trial = msgspec.structs.replace(
        spec("hello"), benchmark=PluginRef(name="fragile", options=options)
    )
    with recorded(trial) as recording:
        failure = recording.failure
    assert failure is not None
    assert (failure.cause, "the board" in failure.message) == (Cause.WORLD, True)


def test_a_clock_that_jumps_changes_no_limit_and_no_duration(
    spec: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of the machine is set back and forth by ten years while the agent works."""
    real, years = time.time(), iter(range(0, 4000, 10))
    jump = lambda: real + (-1) ** (year := next(years)) * year * 31_536_000.0  # noqa: E731
    monkeypatch.setattr(time, "time", jump)
    monkeypatch.setattr(time, "time_ns", lambda: int(jump() * 1e9))
    began = time.monotonic()
    with recorded(spec("!do wait 0.2 ; say here")) as ok:
        pass
    with recorded(spec("!do wait 300", limits=Limits(turn_s=0.5))) as late:
        pass
    assert time.monotonic() - began < 15
    assert ok.failure is None
    assert 200 <= ok.end_ms - ok.start_ms < 10_000
    assert late.turns[-1].end.timed_out
    assert 500 <= late.end_ms - late.start_ms < 10_000
