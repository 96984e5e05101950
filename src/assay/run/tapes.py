"""The tapes of a run, and what a trial has to do with them: one lane, found, written or missed."""

import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from assay.errors import InputError, OutputError
from assay.records.capture import Cause, Difference, Failure, Replay, Wire
from assay.records.spec import TrialSpec
from assay.records.tape import (
    MOST_UNPACKED,
    Exchange,
    Fault,
    Lane,
    Tape,
    TapeUse,
    TapeWriter,
)
from assay.run.gateway import Traffic
from assay.run.secrets import Secrets
from assay.run.wire import (
    Names,
    Timed,
    asked,
    first_difference,
    for_tape,
    model_in,
    similarity,
    tokens_in,
    without_keys,
)

_MOST_DIFFERENCES = 20
_MOST_MODELS = 20
_SHOWN = 500
_MOST_ANSWER = 32 * 1024 * 1024
"""Characters of an answer on a tape."""
_MOST_ON_TAPE = 512 * 1024 * 1024
"""Bytes that one trial may write."""
_LATE_BYTES = 1024 * 1024
"""What is longer is not read any more after the end of the trial."""
_open: dict[str, Tape] = {}
"""The tapes of the run that this process executes, by their paths."""


@contextmanager
def open_tapes(uses: Iterable[TapeUse | None]) -> Iterator[None]:
    """Hold the tapes of a run open; each of them has one writer."""
    with ExitStack() as stack:
        for use in uses:
            for name in (use.record, use.replay) if use is not None else ():
                if name and name not in _open:
                    assert use is not None
                    writes = name == use.written
                    _open[name] = stack.enter_context((TapeWriter if writes else Tape)(Path(name)))
                    stack.callback(_open.pop, name)
        yield


def check_tape(use: TapeUse) -> None:
    """Refuse a tape that cannot be read, before anything runs."""
    if use.replay:
        Tape(Path(use.replay)).close()


class TapeLane:
    """What one attempt at a trial does with tapes. Its proxy asks it, in several threads."""

    def __init__(
        self,
        spec: TrialSpec,
        use: TapeUse,
        names: Names,
        secrets: Callable[[], Secrets],
        on_miss: Callable[[], None],
    ) -> None:
        self.use, self._spec, self._names, self._secrets = use, spec, names, secrets
        self.traffic = Traffic(proxied=False)
        self._on_miss = on_miss
        self._lock = threading.Lock()
        self._n_asked = 0
        self._n_hits = 0
        self._used: set[int] = set()
        self._differs: dict[int, Difference] = {}
        self._miss = ""
        self._models: dict[str, None] = {}
        self._tokens = [0, 0]
        self._lost: dict[str, int] = {}
        """Exchanges that are not on the tape, by why."""
        self._n_bytes = 0
        self._reading = threading.Lock()
        """Reading large requests takes time: of one trial, one at a time."""
        self.ended = threading.Event()
        """The trial is over: what its agent asked and did not wait for is left out."""
        self.error: OutputError | None = None
        """Why the tape could not be written; it ends the run."""
        self._source = _open.get(use.replay)
        self._target = _open.get(use.written)
        assert self._target is None or isinstance(self._target, TapeWriter)
        self._key = (use.arm, spec.prompt.id, spec.number, len(spec.retried))
        self._lane = self._source.current.get(self._key) if self._source else None
        self._spots = self._source.spots(self._lane.lane) if self._source and self._lane else []
        self._written: Lane | None = self._lane if use.misses and self._lane else None
        self._n_written = len(self._spots) if self._written else 0

    @property
    def replays(self) -> bool:
        """Whether answers come from a tape."""
        return self._source is not None

    @property
    def asks_provider(self) -> bool:
        """Whether what the tape does not have is asked of the provider."""
        return self._source is None or self.use.misses

    def arrived(self) -> int:
        """Return the number of a request that has arrived."""
        with self._lock:
            self._n_asked += 1
            return self._n_asked

    def faults(self, number: int) -> list[Fault]:
        """Return what is to go wrong with a request: the same in each run of the same trial."""
        return [f for n, f in enumerate(self.use.faults) if self._draw(number, n) < f.share]

    def _draw(self, number: int, fault: int) -> float:
        text = repr((*self._key, number, fault)).encode()
        return int.from_bytes(hashlib.sha256(text).digest()[:6]) / 2**48

    def find(
        self, method: str, path: str, body: bytes, credentials: Sequence[str] = ()
    ) -> Exchange | None:
        """Return the recorded answer to a request; None is a miss, which is noted."""
        if self._source is None or self.ended.is_set():
            return None
        with self._reading:
            secrets = self._secrets().with_credentials(credentials)
            request, results = asked(body, self._names, secrets)
        wanted = Exchange(lane=0, number=0, method=method, path=_plain(path), request=request)
        try:
            found = self._found(wanted)
        except InputError as error:
            self._miss = self._miss or error.message
            self._on_miss()
            found = None
        if found is None:
            return None
        self._compare(found, results)
        return msgspec.structs.replace(
            found, answer=[(ms, self._names.show(text)) for ms, text in found.answer]
        )

    def _found(self, wanted: Exchange) -> Exchange | None:
        """Raises InputError where the tape is not what its index says."""
        assert self._source is not None
        key = wanted.key
        with self._lock:
            fitting = [spot for spot in self._spots if spot.key == key]
            fresh = [spot for spot in fitting if spot.number not in self._used]
            # An agent that asks more often than it did gets the last answer again.
            spot = fresh[0] if fresh else fitting[-1] if fitting else None
            if spot is None:
                self._note_miss(wanted)
                return None
            found = self._source.exchange(spot)
            self._used.add(spot.number)
            self._n_hits += 1
        return found

    def _compare(self, found: Exchange, results: Sequence[Any]) -> None:
        """Note which results of tools are not those that were recorded."""
        for number, (old, new) in enumerate(zip(found.results, results, strict=False), 1):
            is_known = number in self._differs or len(self._differs) >= _MOST_DIFFERENCES
            if not is_known and (apart := first_difference(old, new)):
                _, before, now = apart
                self._differs[number] = Difference(
                    call=number, recorded=before[:_SHOWN], now=now[:_SHOWN]
                )

    def _note_miss(self, wanted: Exchange) -> None:
        if self._miss or self.use.misses:
            return
        self._miss = self._why_missed(wanted)
        self._on_miss()

    def _why_missed(self, wanted: Exchange) -> str:
        assert self._source is not None
        spec = self._spec
        if self._lane is None:
            return f"it has no {self._wanted_words()}; {_present_words(self._source, self._key)}"
        turns = _masked_turns(spec, self._secrets())
        if found := first_difference(self._lane.asked, turns, "turns of the prompt"):
            return _apart_words("the prompt is another one", found)
        nearest = self._nearest(wanted)
        if nearest is None:
            return f"no request {wanted.method} {wanted.path} was recorded in this trial"
        old, new = ({"path": one.path, **_as_object(one.request)} for one in (nearest, wanted))
        found = first_difference(old, new) or ("the method", nearest.method, wanted.method)
        what = f"request {self._n_asked} differs from exchange {nearest.number}"
        return _apart_words(what, found)

    def _nearest(self, wanted: Exchange) -> Exchange | None:
        assert self._source is not None
        same = [
            one
            for spot in self._spots
            if (one := self._source.exchange(spot)).method == wanted.method
        ]
        unused = [one for one in same if one.number not in self._used] or same
        return max(unused, key=lambda one: similarity(one.request, wanted.request), default=None)

    def _wanted_words(self) -> str:
        arm, prompt, trial, attempt = self._key
        return Lane(lane=0, arm=arm, prompt=prompt, trial=trial, attempt=attempt).words

    def record(
        self,
        exchange: Exchange,
        body: bytes,
        pieces: Sequence[Timed],
        credentials: Sequence[str] = (),
    ) -> None:
        """Write an exchange that has ended, and count what it used."""
        with self._reading:
            if self.ended.is_set() and len(body) > _LATE_BYTES:
                return
            secrets = self._secrets().with_credentials(credentials)
            try:
                made = self._as_kept(exchange, body, pieces, secrets)
                why = self._why_lost(made, pieces, secrets)
            except RecursionError:
                self._lose("nested too deeply")
                return
        with self._lock:
            self._count(made)
            if why:
                self._lose(why)
            elif isinstance(self._target, TapeWriter):
                self._write(made, self._target)

    def _as_kept(
        self, exchange: Exchange, body: bytes, pieces: Sequence[Timed], secrets: Secrets
    ) -> Exchange:
        request, results = asked(body, self._names, secrets)
        answer = for_tape(pieces, self._names, secrets)
        return msgspec.structs.replace(
            exchange,
            path=_plain(exchange.path),
            request=request,
            results=results,
            answer=answer,
            model=model_in(request, exchange.path),
            tokens=tokens_in(answer),
        )

    def _why_lost(self, made: Exchange, pieces: Sequence[Timed], secrets: Secrets) -> str:
        """Return why an exchange must not be on the tape: too much, or a key that is left in it."""
        if not isinstance(self._target, TapeWriter):
            return ""
        data = msgspec.json.encode(made)
        if len(data) > MOST_UNPACKED or sum(len(one.text) for one in pieces) > _MOST_ANSWER:
            return "too long"
        text = data.decode("utf-8", "replace")
        if secrets.occur_in(data) or without_keys(text) != text:
            return "a key could not be covered"
        return ""

    def _lose(self, why: str) -> None:
        self._lost[why] = self._lost.get(why, 0) + 1

    def _write(self, made: Exchange, target: TapeWriter) -> None:
        if self._n_bytes > _MOST_ON_TAPE:
            self._lose("the trial has asked too much")
            return
        try:
            if self._written is None:
                self._written = target.add_lane(self._new_lane())
            self._n_written += 1
            self._n_bytes += target.add(
                msgspec.structs.replace(made, lane=self._written.lane, number=self._n_written)
            )
        except OutputError as error:
            self.error = self.error or error
            self._on_miss()

    def count(self, exchange: Exchange) -> None:
        """Count what a replayed answer says that it used."""
        with self._lock:
            self._count(exchange)

    def _count(self, exchange: Exchange) -> None:
        if exchange.model and len(self._models) < _MOST_MODELS:
            self._models[exchange.model[:_SHOWN]] = None
        if exchange.tokens is not None and exchange.status == 200:
            self._tokens[0] += exchange.tokens.input
            self._tokens[1] += exchange.tokens.output

    def _new_lane(self) -> Lane:
        arm, prompt, trial, attempt = self._key
        identity = self._spec.identity
        return Lane(
            lane=0,
            arm=arm,
            prompt=prompt,
            trial=trial,
            attempt=attempt,
            asked=_masked_turns(self._spec, self._secrets()),
            agent=self._spec.agent.name,
            version=identity.program if identity is not None else "",
        )

    def failure(self) -> Failure | None:
        """Return why the trial is not measured, if the tape has no answer."""
        if not self._miss:
            return None
        todo = "record again, or add --record-misses, which asks the provider for what is missing"
        return Failure(cause=Cause.TAPE, message=f"the tape has no answer: {self._miss}; {todo}")

    def replay(self) -> Replay | None:
        """Return what the row says of the replay."""
        if self._source is None:
            return None
        return Replay(
            tape=Path(self.use.replay).name,
            hits=self._n_hits,
            differs=[self._differs[number] for number in sorted(self._differs)],
        )

    def wire(self) -> Wire:
        """Return what the row says of all requests."""
        return Wire(
            requests=self._n_asked,
            answers=self.traffic.seen()["answers"],
            models=[*self._models],
            input_tokens=self._tokens[0],
            output_tokens=self._tokens[1],
        )

    def warnings(self) -> Iterator[str]:
        """Yield what a reader of the trial should know."""
        if not self._n_asked:
            yield "no request to a model passed the proxy: the agent does not use its base URL"
        for why, n in self._lost.items():
            yield f"{n} exchanges are not on the tape: {why}"


def _plain(path: str) -> str:
    """Return a path without what may be a key in its query."""
    return without_keys(path.partition("?")[0])


def _as_object(request: Any) -> dict[str, Any]:
    return request if isinstance(request, dict) else {"body": request}


def _masked_turns(spec: TrialSpec, secrets: Secrets) -> list[str]:
    return [without_keys(secrets.mask_text(turn)) for turn in spec.prompt.turns]


def _apart_words(what: str, found: tuple[str, str, str]) -> str:
    place, old, new = found
    return f"{what} at {place}: recorded {old!r}, now {new!r}"


def _present_words(tape: Tape, key: tuple[str, str, int, int]) -> str:
    lanes = tape.current.values()
    arm, prompt, *_ = key
    numbers = sorted({lane.trial for lane in lanes if (lane.arm, lane.prompt) == (arm, prompt)})
    if numbers:
        return f"of this prompt it has trial {', '.join(map(str, numbers))}"
    arms = sorted({lane.arm for lane in lanes if lane.prompt == prompt})
    if arms:
        return f"of this prompt it has the arms {', '.join(one or '(none)' for one in arms)}"
    return f"it has the prompts {', '.join(sorted({lane.prompt for lane in lanes})[:10])}"
