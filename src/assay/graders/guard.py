"""Judge with Python code, never for longer than allowed.

Python cannot end its own threads, so there are two ways. In the main thread (`grade -j 1`) an alarm
interrupts the code: fast, and it reaches loops, sleeps and regular expressions; code that catches
the alarm and goes on is stopped at its next line. In any other thread (`capture`, `trials`,
`grade -j 2`) the code runs in a child process of ours, which is killed.
"""

import atexit
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, ClassVar

import msgspec

from assay.errors import PluginError
from assay.graders.fingerprint import changed_options, options_of, version_with
from assay.graders.program import ask_served
from assay.plugin import Host, Trial
from assay.records.capture import Grade
from assay.records.spec import PluginRef

_MAIN_THREAD = threading.main_thread().ident
_TICK_S = 0.1
"""How exact the alarm is."""
_AGAIN_S = 0.5
"""Code that swallowed the alarm gets another so much later."""
_PATIENCE = 2
"""So many alarms are caught before every line of the code is made to raise."""
_TOOL_ID = 4
"""One of Python's six places for tools that watch code; debuggers and the like have others."""
_SPARED = (str(Path(__file__).parents[1]), str(Path(threading.__file__).parent), "<frozen")


class Answer(msgspec.Struct, omit_defaults=True):
    """What the child process says about one trial."""

    grade: Grade | None = None
    error: str = ""


_ANSWER = msgspec.json.Decoder(Answer)


@dataclass(kw_only=True)
class PythonCode:
    """Base of graders that are Python code. Fields are the options a user may set."""

    name: ClassVar[str]
    code_version: ClassVar[str]
    """Raised when any trial could get another pass, score or outcome than before, also because of
    a helper or a default that changed; not for a reworded reasoning. The examples in
    tests/graders/test_versions.py notice most of these."""
    can_hang: ClassVar[bool] = True
    """Whether hostile text or a user's code can make judge() take for ever."""
    sees: ClassVar[frozenset[str] | None] = frozenset({"output"})
    """Fields of a trial it looks at besides the short ones; None is all of them."""
    timeout_s: float = 60.0

    @cached_property
    def version(self) -> str:
        """Of the code and the options."""
        return version_with(self.code_version, changed_options(self))

    def judge(self, trial: Trial) -> Grade:
        """Give a verdict: here, now, however long it takes."""
        raise NotImplementedError

    def grade(self, trial: Trial, host: Host) -> Grade:
        """Give a verdict within the time."""
        if not self.can_hang:
            return self.judge(trial)
        if threading.get_ident() == _MAIN_THREAD:
            return within(self.timeout_s, self.judge, trial)
        return self._judge_apart(trial, host)

    def _judge_apart(self, trial: Trial, host: Host) -> Grade:
        said = ask_served(host.serve(self._child), msgspec.json.encode(trial), self.timeout_s)
        answer = _ANSWER.decode(said)
        if answer.grade is None:
            raise PluginError(answer.error)
        return answer.grade

    @cached_property
    def _child(self) -> list[str]:
        ref = PluginRef(name=type(self).name, options=options_of(self))
        said = msgspec.json.encode(ref).decode()
        return [sys.executable, "-P", "-m", "assay.graders.child", said]


class TooLong(BaseException):
    """Not an Exception: a grader that catches those must not catch this."""


def within(seconds: float, judge: Callable[[Trial], Grade], trial: Trial) -> Grade:
    """Call judge in the main thread; interrupt it when the time is over."""
    alarm, outer_s = _alarm, _alarm.deadline_s
    try:
        alarm.deadline_s = time.monotonic() + seconds
        if not alarm.is_set:  # looked at only now: with a deadline it does not clear itself
            alarm.set()
        grade = judge(trial)
        alarm.deadline_s = outer_s
        if alarm.n_swallowed:
            alarm.forget()
    except TooLong:
        alarm.deadline_s = outer_s
        alarm.forget()
        msg = f"Grader gave no answer in {seconds:g} s"
        raise PluginError(msg) from None
    except BaseException:
        alarm.deadline_s = outer_s
        alarm.forget()
        raise
    return grade


class _Alarm:
    """Looks at the clock ten times a second for as long as there is anything to look after.

    Setting and clearing a timer for each row would take longer than most graders do.
    """

    def __init__(self) -> None:
        self.is_set = False
        self.deadline_s: float | None = None
        self.n_swallowed = 0
        """How often the code was told of its deadline already."""
        self._before: Any = None

    def set(self) -> None:
        self.is_set = True
        atexit.register(self._clear)  # a ring after Python's end would be the process's end
        self._before = signal.signal(signal.SIGALRM, self._ring)
        signal.setitimer(signal.ITIMER_REAL, _TICK_S, _TICK_S)

    def _ring(self, number: int, frame: FrameType | None) -> None:
        if self.deadline_s is None:
            self._clear()
        elif time.monotonic() >= self.deadline_s:
            self.deadline_s = time.monotonic() + _AGAIN_S
            self.n_swallowed += 1
            if self.n_swallowed == _PATIENCE:
                _stop_every_line()
            raise TooLong

    def forget(self) -> None:
        """The code has ended: the next one starts with a clean sheet."""
        if self.n_swallowed >= _PATIENCE:
            sys.monitoring.set_events(_TOOL_ID, 0)
            sys.monitoring.free_tool_id(_TOOL_ID)
        self.n_swallowed = 0

    def _clear(self) -> None:
        atexit.unregister(self._clear)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)
        self.is_set = False


def _stop_every_line() -> None:
    """Raise behind the `except` that caught the alarm, and behind every one around it."""
    tools = sys.monitoring
    tools.use_tool_id(_TOOL_ID, "assay")
    tools.register_callback(_TOOL_ID, tools.events.LINE, _stop_line)
    tools.set_events(_TOOL_ID, tools.events.LINE)


def _stop_line(code: CodeType, line: int) -> None:
    """Spare our code and Python's own: what they clean up is needed by the next row."""
    if not code.co_filename.startswith(_SPARED):
        raise TooLong


_alarm = _Alarm()
