"""Judge with Python code, never for longer than allowed.

Python cannot end its own threads, so there are two ways. In the main thread (`grade -j 1`) an alarm
interrupts the code: fast, and it reaches loops, sleeps and regular expressions. In any other thread
(`capture`, `trials`, `grade -j 2`) the code runs in a child process of ours, which is killed.
"""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from types import FrameType
from typing import Any, ClassVar, Never

import msgspec

from assay.errors import PluginError
from assay.graders.fingerprint import built_in_version, options_of
from assay.records.grade import Grade
from assay.records.trial import PluginRef
from assay.seams import Host, Trial

_AGAIN_S = 0.5
"""Code that swallowed the alarm gets another."""


class Answer(msgspec.Struct, omit_defaults=True):
    """What the child process says about one trial."""

    grade: Grade | None = None
    error: str = ""


_ANSWER = msgspec.json.Decoder(Answer)


@dataclass(kw_only=True)
class PythonCode:
    """Base of graders that are Python code. Fields are the options a user may set."""

    name: ClassVar[str]
    can_hang: ClassVar[bool] = True
    """Whether hostile text or a user's code can make judge() take for ever."""
    timeout_s: float = 60.0

    @cached_property
    def version(self) -> str:
        """Fingerprint of code and options."""
        return built_in_version(self)

    def judge(self, trial: Trial) -> Grade:
        """Give a verdict: here, now, however long it takes."""
        raise NotImplementedError

    def grade(self, trial: Trial, host: Host) -> Grade:
        """Give a verdict within the time."""
        if not self.can_hang:
            return self.judge(trial)
        if threading.current_thread() is threading.main_thread():
            return within(self.timeout_s, self.judge, trial)
        return self._judge_apart(trial, host)

    def _judge_apart(self, trial: Trial, host: Host) -> Grade:
        answer = _ANSWER.decode(
            host.serve(self._child).ask(msgspec.json.encode(trial), self.timeout_s)
        )
        if answer.grade is None:
            raise PluginError(answer.error)
        return answer.grade

    @cached_property
    def _child(self) -> list[str]:
        ref = PluginRef(name=type(self).name, options=options_of(self))
        said = msgspec.json.encode(ref).decode()
        return [sys.executable, "-P", "-m", "assay.graders.child", said]


class _TooLong(BaseException):
    """Not an Exception: a grader that catches those must not catch this."""


def within(seconds: float, judge: Callable[[Trial], Grade], trial: Trial) -> Grade:
    """Call judge in the main thread; interrupt it when the time is over."""
    try:
        with _alarm(seconds):
            return judge(trial)
    except _TooLong:
        msg = f"Grader gave no answer in {seconds:g} s"
        raise PluginError(msg) from None


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    before: Any = signal.signal(signal.SIGALRM, _ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _ring(number: int, frame: FrameType | None) -> Never:
    raise _TooLong
