"""What graders that are Python code share: a version, and an end for code that hangs.

Python cannot end its own threads, and code that catches every exception cannot be interrupted
either. So a user's code runs in a forked process that can be killed, one for each thread that asks,
and is asked about many trials at once where there are many. Built-ins that may hang do not catch
the exception of an alarm: in the main thread (`grade -j 1`) an alarm ends them, which costs
nothing; elsewhere they run in such a process too.
"""

import atexit
import dataclasses
import hashlib
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, ClassVar

import msgspec

from assay import plugins
from assay.errors import AssayError, Interrupted, OutOfResources, PluginError
from assay.functions import new_runner
from assay.plugin import Grader, Host, Served, Trial
from assay.records.capture import Grade
from assay.records.spec import PluginRef

_CHILD_FUNCTION = f"{__name__}:answer_lines"
_MAIN_THREAD = threading.main_thread().ident
_TICK_S = 0.1
"""The alarm may be late by this much."""
_NO_VERDICT = frozenset({"timeout_s", "folder"})
"""Options that are no part of the version: how long we wait, since on timeout there is no verdict,
and where a script lies, whose content is a part of it."""
_SHORT = 8
"""Hex digits of a hash of options: enough to tell a user's few sets of options apart."""
_ANSWERS: msgspec.json.Decoder[Grade | str] = msgspec.json.Decoder(Grade | str)
"""What the child process answers about a trial: a grade, or the reason why there is none."""
_ASK_ROWS = 128
"""How many trials are sent together: few enough to stay in the processor's cache until the answers
come, enough that a child has work for as long as we need for the answers before."""
_TRIALS = msgspec.json.Decoder(Trial)
_ENCODER = msgspec.json.Encoder()


@dataclass(kw_only=True)
class PythonCode(Grader):
    """Base of graders that are Python code. Fields are the options a user may set."""

    code_version: ClassVar[str]
    """Raised when any trial could get another pass, score or outcome than before, also because of
    a helper or a default that changed; not for a reworded reasoning. The examples in
    tests/graders/test_versions.py notice most of these."""
    can_hang: ClassVar[bool] = True
    """Whether hostile text or a user's code can make judge() take for ever."""
    only_computes = True
    """Also: judge() is sure to end when an alarm raises in it. It catches no BaseException and
    calls no C code that takes long without looking for signals (`re` does look)."""
    sees = frozenset({"output"})
    timeout_s: float = 60.0

    @cached_property
    def child_function(self) -> str | None:
        """The function to fork for judging; None when this grader needs no process of its own."""
        return _CHILD_FUNCTION if self.can_hang else None

    @cached_property
    def version(self) -> str:
        """The version of the code and the options."""
        return version_with(self.code_version, changed_options(self))

    def judge(self, trial: Trial) -> Grade:
        """Return a verdict, however long it takes."""
        raise NotImplementedError

    def grade(self, trial: Trial, host: Host) -> Grade:
        """Return a verdict within the time limit."""
        return only_answer(self.grade_many([trial], host))

    def grade_many(self, trials: Iterable[Trial], host: Host) -> Iterator[Grade | Exception]:
        """Yield for each trial, as soon as it is known, what grade() would return or raise.

        More trials may be taken than were answered, so that the grader has work all the time.
        """
        if not self.can_hang or (self.only_computes and threading.get_ident() == _MAIN_THREAD):
            return map(self._judge_here, trials)
        return self._judge_in_child(trials, host)

    def _judge_here(self, trial: Trial) -> Grade | Exception:
        alarm = _alarm
        try:
            if self.can_hang:
                alarm.deadline_s = time.monotonic() + self.timeout_s
                # Checked only now: the alarm clears itself while there is no deadline.
                if not alarm.is_set:
                    alarm.set()
            return self.judge(trial)
        except _OutOfTime:
            return PluginError(f"Grader gave no answer in {self.timeout_s:g} s")
        except Exception as error:  # noqa: BLE001 - whatever it is, this trial has no verdict
            return error
        finally:
            alarm.deadline_s = None

    def _judge_in_child(self, trials: Iterable[Trial], host: Host) -> Iterator[Grade | Exception]:
        ahead = iter(trials)
        pending = _PendingTrials(lambda: host.serve_function(_CHILD_FUNCTION, self._reference))
        try:
            while more := list(islice(ahead, _ASK_ROWS)):
                # These are sent before the answers to the last ones are read.
                yield from pending.answers(more, len(more), self.timeout_s)
            yield from pending.answers([], 0, self.timeout_s)
        finally:
            pending.drop()

    @cached_property
    def _reference(self) -> str:
        options = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return _ENCODER.encode(PluginRef(name=type(self).name, options=options)).decode()

    @cached_property
    def _runner(self) -> Any:
        """Runs async functions, all in one event loop: a new loop for each row is slow."""
        return new_runner()


class _PendingTrials:
    """Trials that were put to a child process and are not answered yet."""

    def __init__(self, serve: Callable[[], Served]) -> None:
        self._serve = serve
        self._child: Served | None = None
        self._trials: deque[Trial] = deque()

    def answers(
        self, more: Sequence[Trial], n_left: int, timeout_s: float
    ) -> Iterator[Grade | Exception]:
        """Put more trials to the child; yield answers until only n_left are to come."""
        trials = self._trials
        trials.extend(more)
        while more or len(trials) > n_left:
            try:
                if self._child is None:
                    self._child, more = self._serve(), list(trials)
                if more:
                    self._child.send(_ENCODER.encode_lines(more))
                    more = ()
                while len(trials) > n_left:
                    answers = self._child.receive(timeout_s)
                    if not answers:  # this child ended, but no trial is to blame
                        self._child = None
                        break
                    for answer in _ANSWERS.decode_lines(answers):
                        trials.popleft()
                        yield PluginError(answer) if isinstance(answer, str) else answer
            except (Interrupted, OutOfResources):
                raise
            except AssayError as error:  # this trial broke the child; the rest go to another
                self._child, more = None, ()
                trials.popleft()
                yield PluginError(f"Grader {error.message}")

    def drop(self) -> None:
        """End the child if it still has work that nobody waits for."""
        if self._trials and self._child is not None:
            self._child.close()


class _OutOfTime(BaseException):
    """The time is over. Not an Exception, because libraries catch those."""


class _Alarm:
    """A timer that checks the deadline ten times a second while a grader is at work.

    Setting and clearing a timer for each row would take longer than most graders do.
    """

    def __init__(self) -> None:
        self.is_set = False
        self.deadline_s: float | None = None
        self._before: Any = None

    def set(self) -> None:
        self.is_set = True
        atexit.register(self._clear)  # after Python's own end SIGALRM would kill the process
        self._before = signal.signal(signal.SIGALRM, self._tick)
        signal.setitimer(signal.ITIMER_REAL, _TICK_S, _TICK_S)

    def _tick(self, *_: object) -> None:
        if self.deadline_s is None:
            self._clear()
        elif time.monotonic() >= self.deadline_s:
            raise _OutOfTime

    def _clear(self) -> None:
        atexit.unregister(self._clear)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)
        self.is_set = False


_alarm = _Alarm()


def answer_lines(reference: str) -> Callable[[bytes], Iterator[bytes]]:
    """Build a grader in the child process; return the function that answers trials."""
    grader = plugins.grader(msgspec.json.decode(reference, type=PluginRef))
    assert isinstance(grader, PythonCode)
    judge, encode = grader.judge, _ENCODER.encode

    def answer(lines: bytes) -> Iterator[bytes]:
        for trial in _TRIALS.decode_lines(lines):
            before = {name: os.environ.pop(name) for name in trial.env if name in os.environ}
            os.environ.update(trial.env)
            try:
                line = encode(judge(trial))
            except BaseException as error:  # noqa: BLE001 - a user's grader may raise anything
                line = encode(_error_text(error))
            for name in trial.env:
                os.environ.pop(name, None)
            os.environ.update(before)
            yield line + b"\n"

    return answer


def _error_text(error: BaseException) -> str:
    if isinstance(error, AssayError):
        text = error.message
    elif isinstance(error, SystemExit):
        text = f"Grader called exit({error.code!r})"
    else:
        text = f"{type(error).__name__}: {error}"
    return text.encode(errors="replace").decode()  # a lone surrogate cannot be written as JSON


def only_answer(answers: Iterable[Grade | Exception]) -> Grade:
    """Return the answer of grade_many to a single trial, or raise it."""
    (answer,) = answers
    if isinstance(answer, Exception):
        raise answer
    return answer


def fingerprint(*parts: Any) -> str:
    """Hash bytes as they are and everything else as JSON."""
    digest = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else msgspec.json.encode(part, order="deterministic")
        digest.update(len(data).to_bytes(8) + data)  # the length keeps "ab", "c" from "a", "bc"
    return digest.hexdigest()[:12]


def version_with(code_version: str, options: dict[str, Any]) -> str:
    """Return a built-in's version: "1", or with options "1-3f2a9c1b".

    Grades of the same version were given by the same rules. A user's grader has a hash of its
    content as its version; a built-in's is written beside its code, so that the code may be moved
    and reworded. It contains no colon: `compare` and `calibrate` write one before a version.
    """
    return f"{code_version}-{fingerprint(options)[:_SHORT]}" if options else code_version


def changed_options(grader: Any) -> dict[str, Any]:
    """Return the options that decide a verdict and differ from their defaults.

    Only these are hashed, so that a new option with a neutral default changes no version.
    """
    changed = {}
    for field in dataclasses.fields(grader):
        factory = field.default_factory
        default = field.default if factory is dataclasses.MISSING else factory()
        value = getattr(grader, field.name)
        if field.name not in _NO_VERDICT and value != default:
            changed[field.name] = value
    return changed
