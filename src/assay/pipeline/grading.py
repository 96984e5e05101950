"""Ask the graders about trials, fresh ones or rows that are on disk already."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from assay import plugins
from assay.errors import AssayError, InputError, Interrupted
from assay.plugin import Grader, Host, Trial
from assay.records.capture import Failure, Grade
from assay.records.rows import UNREADABLE, Place, explain
from assay.records.spec import PluginRef
from assay.records.views import GradingView


class Verdict(msgspec.Struct, kw_only=True):
    """What all graders together said. No score means not measured; it is never a zero."""

    score: Grade | None = None
    grades: dict[str, Grade] = {}
    broken: dict[str, str] = {}
    """Graders that failed, and how."""


def judge(
    trial: Trial, failure: Failure | None, graders: Sequence[PluginRef], host: Host
) -> Verdict:
    """Ask every grader, unless the trial's failure has decided already."""
    if not graders:
        return Verdict()
    return decided(failure) or ask_all([plugins.grader(ref) for ref in graders], trial, host)


def decided(failure: Failure | None) -> Verdict | None:
    """Give the verdict that a failure leaves, None when the graders are to be asked.

    A failure that does not measure the agent leaves the trial without a grade; one that does,
    and left no answer, counts against the agent without asking.
    """
    if failure is None or (failure.answered and failure.cause.measures_agent):
        return None
    if not failure.cause.measures_agent:
        return Verdict()
    reasoning = f"not graded, {failure.cause}: {failure.message}"
    return Verdict(score=Grade(pass_=False, score=0.0, reasoning=reasoning))


def ask_all(graders: Sequence[Grader], trial: Trial, host: Host) -> Verdict:
    """Ask every grader; one that breaks is noted and leaves the trial without a score."""
    grades: dict[str, Grade] = {}
    broken: dict[str, str] = {}
    for grader in graders:
        name = grader.name
        if name in grades or name in broken:
            name = _free_name(name, grades, broken)
        try:
            verdict = grader.grade(trial, host)
            grades[name] = msgspec.structs.replace(verdict, version=grader.version)
        except Interrupted:
            raise
        except AssayError as error:
            broken[name] = error.message
        except Exception as error:  # noqa: BLE001 - a user's grader may raise anything
            broken[name] = f"{type(error).__name__}: {error}".encode(errors="replace").decode()
    if broken or not grades:
        return Verdict(grades=grades, broken=broken)
    return Verdict(score=combine(tuple(grades.values())), grades=grades)


def combine(grades: Sequence[Grade]) -> Grade:
    """Put grades together: pass if all pass, score the mean."""
    if len(grades) == 1:
        return grades[0]
    reasons = [g.reasoning for g in grades if g.reasoning]
    outcome = {key: value for g in grades for key, value in (g.outcome or {}).items()}
    return Grade(
        pass_=all(g.pass_ for g in grades),
        score=sum(g.score for g in grades) / len(grades),
        reasoning="; ".join(reasons) if reasons else UNSET,
        outcome=outcome or UNSET,
    )


def _free_name(name: str, *taken: dict[str, object] | dict[str, Grade] | dict[str, str]) -> str:
    """Two graders of one name are told apart by a number."""
    number, free = 1, name
    while any(free in names for names in taken):
        number += 1
        free = f"{name}-{number}"
    return free


if TYPE_CHECKING:
    from concurrent.futures import Future

_AHEAD_PER_WORKER = 64
_AHEAD_BYTES = 32 * 1024 * 1024
"""How far workers may run ahead of a slow row; bounds memory."""
_OURS = ("errors", "score", "grades", "graderFailures")
"""Fields that an earlier grading may have left; outcome is not one: the old one is kept."""
_NONE = msgspec.Raw()


class GradedRow(NamedTuple):
    """A line with its verdict in it."""

    line: bytes
    id: Any
    verdict: Verdict


class _Added(msgspec.Struct, rename="camel"):
    errors: Any = UNSET
    score: Grade | UnsetType = UNSET
    outcome: dict[str, Any] | UnsetType = UNSET
    grades: dict[str, Grade] | UnsetType = UNSET
    grader_failures: dict[str, str] | UnsetType = UNSET


_ROW = msgspec.json.Decoder(GradingView)
_ANY = msgspec.json.Decoder(dict[str, Any])
_STEPS = msgspec.json.Decoder(list[Any] | None)
_METADATA = msgspec.json.Decoder(dict[str, Any] | None)
_PIECES = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encode = msgspec.json.Encoder().encode


def grade_rows(
    lines: Iterable[tuple[Place, bytes]],
    graders: Sequence[PluginRef],
    host: Host,
    workers: int = 1,
    stop: Callable[[], None] = lambda: None,
) -> Iterator[GradedRow]:
    """Grade every line, give them in their order; with several workers side by side.

    stop is called when it ends early: it makes the workers give up what they wait for.
    """
    grade_row = _RowGrader([plugins.grader(ref) for ref in graders], host)
    if workers == 1:
        for place, line in lines:
            yield grade_row(place, line)
        return
    yield from _in_order(grade_row, lines, workers, stop)


class _RowGrader:
    """Grades one line at a time."""

    def __init__(self, graders: Sequence[Grader], host: Host) -> None:
        self._graders = graders
        self._host = host
        seen = [getattr(grader, "sees", None) for grader in graders]
        self._sees_all = any(names is None for names in seen)
        self._sees = frozenset(name for names in seen for name in names or ())

    def __call__(self, place: Place, line: bytes) -> GradedRow:
        try:
            row = _ROW.decode(line)
            verdict = decided(row.failure) if row.failure is not None else None
            if verdict is None:
                verdict = ask_all(self._graders, self._trial(row, line), self._host)
        except UNREADABLE as error:
            raise _unreadable(place, line, error) from error
        return GradedRow(_with_verdict(line, row, verdict), row.id, verdict)

    def _trial(self, row: GradingView, line: bytes) -> Trial:
        """Decode what some grader looks at, and nothing else."""
        everything, sees = self._sees_all, self._sees
        metadata, cwd = None, None
        steps: list[Any] = []
        if everything or "metadata" in sees or "cwd" in sees:
            metadata = _METADATA.decode(row.metadata or b"null") or {}
            cwd = _workspace(row.cwd, metadata)
        if everything or "trajectory" in sees:
            steps = _STEPS.decode(row.trajectory or b"null") or []
        return Trial(
            input=row.input,
            output=row.output,
            hint=row.hint,
            trajectory=steps,
            metadata=metadata,
            cwd=cwd,
            reference=row.reference,
            row=_ANY.decode(line) if everything else {},
        )


def _workspace(cwd: str | None, metadata: dict[str, Any] | None) -> str | None:
    """Give the folder the agent worked in, when it is still there."""
    folder = cwd or (metadata or {}).get("workspaceDir")
    return folder if isinstance(folder, str) and Path(folder).is_dir() else None


def _with_verdict(line: bytes, row: GradingView, verdict: Verdict) -> bytes:
    """Return the line with the verdict in it, everything else as it was.

    This is done on the text where it can be, behind the last field: taking a row apart and putting
    it together again takes a tenth of all the time of grading. Other rows are taken apart into
    undecoded fields.
    """
    score = verdict.score
    added = _Added(
        score=score or UNSET,
        outcome=score.outcome if score else UNSET,
        grades=verdict.grades or UNSET,
        grader_failures=verdict.broken or UNSET,
    )
    text = line if line.endswith(b"}\n") else line.strip() + b"\n"
    others = row.outcome or row.grader_failures or row.errors
    earlier = row.score or row.grades
    # A row that we have graded before ends with what we added: cut that off.
    if earlier and not others and text.endswith(tail := _tail(row)):
        text, earlier = text[: -len(tail)] + b"}\n", _NONE
    if earlier or others:
        added.errors = _errors(line, verdict)
        new = _PIECES.decode(_encode(added))
        old = {k: v for k, v in _PIECES.decode(line).items() if k not in _OURS or k in new}
        return _encode({**old, **new})
    if verdict.broken:
        added.errors = list(verdict.broken.values())
    new_fields = _encode(added)
    if new_fields == b"{}":
        return text[:-1]
    return text[:-2] + b"," + new_fields[1:]


def _tail(row: GradingView) -> bytes:
    """Give the end of a line as an earlier grading leaves it: what it added stands last."""
    score = b',"score":%b' % row.score if row.score else b""
    return score + (b',"grades":%b}\n' % row.grades if row.grades else b"}\n")


def _errors(line: bytes, verdict: Verdict) -> Any:
    """Give the row's errors without those of an earlier grading, and with those of this one."""
    fields = _ANY.decode(line)
    earlier = fields.get("graderFailures")
    if not verdict.broken and not isinstance(earlier, dict):
        return fields.get("errors", UNSET)
    before = fields.get("errors") or []
    before = before if isinstance(before, list) else [before]
    gone = earlier.values() if isinstance(earlier, dict) else ()
    return [*(error for error in before if error not in gone), *verdict.broken.values()] or UNSET


def _unreadable(place: Place, line: bytes, error: Exception) -> InputError:
    msg = f"{place}: {explain(error)}"
    if not isinstance(error, msgspec.ValidationError):
        return InputError(msg)
    hint = "assay grade reads the output of `assay capture` and `assay extract`"
    if b'"trials"' in line:
        hint += "; trials are graded while they run, with `assay trials -g`"
    return InputError(msg, hint=hint)


def _in_order[R](
    work: Callable[[Place, bytes], R],
    lines: Iterable[tuple[Place, bytes]],
    workers: int,
    stop: Callable[[], None],
) -> Iterator[R]:
    """Work on many lines at once; give the results in the order of the lines."""
    from concurrent.futures import ThreadPoolExecutor

    ahead: deque[tuple[int, Future[R]]] = deque()
    n_bytes = 0
    pool = ThreadPoolExecutor(workers)
    try:
        for place, line in lines:
            ahead.append((len(line), pool.submit(work, place, line)))
            n_bytes += len(line)
            while ahead and (
                ahead[0][1].done()
                or len(ahead) > _AHEAD_PER_WORKER * workers
                or n_bytes > _AHEAD_BYTES
            ):
                size, result = ahead.popleft()
                n_bytes -= size
                yield result.result()
        while ahead:
            yield ahead.popleft()[1].result()
    except BaseException:
        stop()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def grader_version(score: Grade | None, grades: Mapping[str, Grade]) -> str | None:
    """Give the version; of several graders all of them, by name. None is unknown."""
    if score is not None and score.version:
        return score.version
    known = [f"{name}:{grade.version}" for name, grade in sorted(grades.items()) if grade.version]
    return "+".join(known) or None
