"""The tapes of a run, and what a trial has to do with them: one lane, found, written or missed."""

import hashlib
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

import msgspec

from assay.errors import InputError, OutputError
from assay.records.answers import tokens_in
from assay.records.capture import Cause, Difference, Failure, Replay, Wire
from assay.records.files import temporary_folder
from assay.records.spec import TrialSpec
from assay.records.tape import (
    MOST_UNPACKED,
    Exchange,
    Fault,
    Lane,
    Spot,
    Tape,
    TapeUse,
    TapeWriter,
    copy_lanes,
)
from assay.run.gateway import Traffic
from assay.run.secrets import Secrets
from assay.run.wire import (
    Names,
    TimedPiece,
    asked,
    first_difference,
    for_tape,
    history,
    last_text,
    model_in,
    similarity,
    whole_texts,
    without_ids,
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
_ORDER_S = 3.0
"""How long an answer waits for one before it that may not be asked for in this run."""
_APART_S = 0.15
"""Between answers to an agent and its sub-agent, one of which waited for the other."""
_MOST_BEGINNINGS = 16
"""Answers that are looked at for what began a sub-agent."""
_BESIDE_S = 10.0
"""How long a request beside the conversation waits for the agent to go on without its answer."""
_open: dict[str, Tape] = {}
"""The tapes of the run that this process executes, by their paths."""
_questions = Counter[tuple[str, str]]()
"""How often judges and simulated users were asked something in this run, by arm and question."""
_counting = threading.Lock()


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
                    stack.callback(_questions.clear)
        yield


def check_tape(use: TapeUse) -> None:
    """Refuse a tape that cannot be read, or is damaged anywhere, before anything runs."""
    path = Path(use.replay or use.record)
    if use.replay or (use.record and path.exists()):
        with Tape(path) as tape:
            tape.check()


def tape_for(spec: TrialSpec) -> bytes | None:
    """Return a tape with what ours has of a trial, for another machine."""
    use = spec.surroundings.tape
    source = _open.get(use.replay) if use is not None else None
    if use is None or source is None:
        return None
    key = (use.arm, spec.prompt.id, spec.number)
    # Questions to a simulated user are found by what they are.
    lanes = {one.lane: one for one in source.current.values() if one.role or one.key[:3] == key}
    with temporary_folder("assay-tape-") as folder:
        path = Path(folder, "tape")
        copy_lanes(source, path, lanes)
        return path.read_bytes()


def take_tape(spec: TrialSpec, recorded: bytes | None) -> int:
    """Add to our tape what another machine has recorded of a trial; return its lane here."""
    use = spec.surroundings.tape
    target = _open.get(use.written) if use is not None else None
    if recorded is None or not isinstance(target, TapeWriter):
        return 0
    with temporary_folder("assay-tape-") as folder:
        path = Path(folder, "tape")
        path.write_bytes(recorded)
        with Tape(path) as source:
            grown = {lane.lane: lane for lane in source.current.values()}
            lanes = target.add_from(source, grown)
            mine = [lane.lane for lane in grown.values() if not lane.role]
    return lanes[mine[-1]] if mine else 0


class _Conversation(Protocol):
    """What a lane knows of the conversation that it is about."""

    secrets: Secrets
    cancelled: threading.Event

    @property
    def turns(self) -> Sequence[Any]:
        """Those that are over."""
        ...


class _Talks:
    """The conversations of a lane that is recorded."""

    def __init__(self) -> None:
        self._ends: list[list[bytes]] = []
        """Of each the messages of its newest request, as digests."""
        self._answers: deque[tuple[int, str]] = deque(maxlen=_MOST_BEGINNINGS)

    def place(self, number: int, made: Exchange) -> tuple[int, int]:
        """Return the conversation of an exchange, and the exchange that began it."""
        messages = history(made.request)
        digests = [hashlib.sha256(msgspec.json.encode(one)).digest() for one in messages]
        self._answers.append((number, whole_texts(made.answer)))
        for talk, before in enumerate(self._ends):
            if digests[: len(before)] == before:
                self._ends[talk] = digests
                return talk, 0
        self._ends.append(digests)
        said = last_text(messages)
        began = (n for n, text in self._answers if said and n < number and said in text)
        return len(self._ends) - 1, next(began, 0)


class TapeLane:
    """What one attempt at a trial does with tapes. Its proxy asks it, in several threads."""

    def __init__(
        self, spec: TrialSpec, use: TapeUse, names: Names, conversation: _Conversation
    ) -> None:
        self.use, self._spec, self._names = use, spec, names
        self._conversation = conversation
        self.traffic = Traffic(proxied=False)
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._played: set[int] = set()
        """Numbers of the exchanges that have been answered, or that nothing waits for any more."""
        self._played_s = time.monotonic()
        """When an answer ended last."""
        self._n_asked = 0
        self._n_hits = 0
        self._used: set[int] = set()
        self._differs: dict[str, Difference] = {}
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
        self._key = self._own_key() if use.role else (
            use.arm, spec.prompt.id, spec.number, len(spec.retried)
        )  # fmt: skip
        self._lane = self._source.current.get(self._key) if self._source else None
        self._spots = self._source.spots(self._lane.lane) if self._source and self._lane else []
        self._talks = _Talks()
        self._written: Lane | None = self._lane if use.misses and self._lane else None
        self._n_written = len(self._spots) if self._written else 0

    def _own_key(self) -> tuple[str, str, int, int]:
        """Return what finds the lane of a question that is no trial: its text, and how often it was
        put before. What it makes up anew each time, such as a code, has a name."""
        text = without_ids("\n".join(self._asked()), self._names)
        name = f"{self.use.role} {hashlib.sha256(text.encode()).hexdigest()[:12]}"
        with _counting:
            _questions[self.use.arm, name] += 1
            return self.use.arm, name, _questions[self.use.arm, name], 0

    def _asked(self) -> list[str]:
        """Return the turns of the prompt, as they stand on the tape."""
        turns = _masked_turns(self._spec, self._conversation.secrets)
        return [without_ids(turn, self._names) for turn in turns] if self.use.role else turns

    @property
    def replays(self) -> bool:
        """Whether answers come from a tape."""
        return self._source is not None

    @property
    def asks_provider(self) -> bool:
        """Whether what the tape does not have is asked of the provider."""
        return self._source is None or self.use.misses

    def arrived(self) -> tuple[int, int]:
        """Return the number of a request that has arrived, and how many are on the tape."""
        with self._lock:
            self._n_asked += 1
            return self._n_asked, self._n_written

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
            secrets = self._conversation.secrets.with_credentials(credentials)
            request, results, calls, ids = asked(body, self._names, secrets)
        wanted = Exchange(lane=0, number=0, method=method, path=_plain(path), request=request)
        try:
            found = self._found(wanted)
        except InputError as error:
            self._miss = self._miss or error.message
            self._conversation.cancelled.set()
            found = None
        if found is None:
            return None
        self._compare(found, calls, results)
        return msgspec.structs.replace(
            found, answer=[(ms, self._shown(text, ids)) for ms, text in found.answer]
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
            if spot is not None:
                self._used.add(spot.number)
                self._n_hits += 1
        if spot is None:
            self._miss_at_last(wanted)
            return None
        if fresh:
            self._wait_for_others(spot)
        return self._source.exchange(spot)

    def _shown(self, text: str, ids: Mapping[str, str]) -> str:
        """Return a piece of an answer with what stands in this trial for its names."""
        text = self._names.show(text)
        if self.use.role and "<assay:id " in text:
            for own, name in ids.items():
                text = text.replace(name, own)
        return text

    def _compare(self, found: Exchange, calls: Sequence[str], results: Sequence[Any]) -> None:
        """Note which results of tools are not those that were recorded."""
        numbered = enumerate(zip(found.results, results, calls, strict=False), 1)
        for number, (old, new, call) in numbered:
            is_known = call in self._differs or len(self._differs) >= _MOST_DIFFERENCES
            if not is_known and (apart := first_difference(old, new)):
                _, before, now = apart
                self._differs[call] = Difference(
                    call=number, call_id=call[:_SHOWN], recorded=before[:_SHOWN], now=now[:_SHOWN]
                )

    def _wait_for_others(self, spot: Spot) -> None:
        """Wait until the exchanges before this one are over, and those of sub-agents that were over
        when the conversation went on.

        What an agent and its sub-agents do at the same time then comes in the order in which it
        came. One that is not asked for any more holds the others up once.
        """
        earlier = {one.number for one in self._spots if one.number < spot.number}
        following = (one for one in self._spots if one.talk == spot.talk)
        after = next((one.after for one in following if one.number > spot.number), 0)
        began = {one.talk: one.cause for one in self._spots if one.cause}
        earlier |= {
            one.number
            for one in self._spots
            if spot.number < one.number <= after and 0 < began.get(one.talk, 0) < spot.number
        }
        with self._changed:
            if earlier <= self._played:
                return
            beside = {one.number for one in self._spots if one.talk != spot.talk}
            is_beside = bool((earlier - self._played) & beside)
            while not (earlier <= self._played or self.ended.is_set()):
                left_s = self._played_s + _ORDER_S - time.monotonic()
                if left_s <= 0:
                    self._played |= earlier
                    return
                self._changed.wait(left_s)
        self.ended.wait(_APART_S if is_beside else 0)

    def played(self, exchange: Exchange) -> None:
        """Note that an answer has been given."""
        with self._changed:
            self._played.add(exchange.number)
            self._played_s = time.monotonic()
            self._changed.notify_all()

    def _miss_at_last(self, wanted: Exchange) -> None:
        """Note a miss, unless the agent goes on without an answer.

        A sub-agent that was ended with its agent may come further this time than it came then.
        """
        if self.use.misses:
            return
        with self._changed:
            if not self._goes_on(wanted):
                while not self.ended.is_set():
                    left_s = self._played_s + _BESIDE_S - time.monotonic()
                    if left_s <= 0:
                        break
                    self._changed.wait(left_s)
            all_used = self._used >= {spot.number for spot in self._spots}
            if self._miss or (self.ended.is_set() and all_used):
                return
            self._miss = self._why_missed(wanted)
        self._conversation.cancelled.set()

    def _goes_on(self, wanted: Exchange) -> bool:
        """Whether it is what the agent asks next, and nothing beside its conversation."""
        last = max(self._used, default=0)
        if not last:
            return True
        before = self._history(last)
        if history(wanted.request)[: len(before)] != before:
            return False
        left = [spot.number for spot in self._spots if spot.number not in self._used]
        return not left or any(self._history(n)[: len(before)] == before for n in left)

    def _history(self, number: int) -> list[Any]:
        assert self._source is not None
        spot = next(spot for spot in self._spots if spot.number == number)
        return history(self._source.exchange(spot).request)

    def end(self) -> None:
        """Let nothing wait any more: the trial is over."""
        with self._changed:
            self.ended.set()
            self._changed.notify_all()

    def _why_missed(self, wanted: Exchange) -> str:
        assert self._source is not None
        if self._lane is None and self.use.role:
            return self._no_question()
        if self._lane is None:
            return f"it has no {self._wanted_words()}; {_present_words(self._source, self._key)}"
        turns = self._asked()
        if found := first_difference(self._lane.asked, turns, "turns of the prompt"):
            return _apart_words("the prompt is another one", found)
        nearest = self._nearest(wanted)
        if nearest is None:
            return f"no request {wanted.method} {wanted.path} was recorded in this trial"
        old, new = ({"path": one.path, **_as_object(one.request)} for one in (nearest, wanted))
        found = first_difference(old, new) or ("the method", nearest.method, wanted.method)
        what = f"request {self._n_asked} differs from exchange {nearest.number}"
        return _apart_words(what, found)

    def _no_question(self) -> str:
        """Say how a question to a judge differs from the nearest on the tape."""
        assert self._source is not None
        known = [lane.asked for lane in self._source.lanes if lane.role == self.use.role]
        turns = self._asked()
        nearest = max(known, key=lambda asked: _common_start(asked, turns), default=None)
        if nearest is None:
            return f"it has no question to a {self.use.role}"
        found = first_difference(nearest, turns)
        if found is None:
            return f"the same question to a {self.use.role} was put less often"
        return _apart_words(
            f"no such question to a {self.use.role} was recorded; one differs", found
        )

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
        pieces: Sequence[TimedPiece],
        credentials: Sequence[str] = (),
    ) -> None:
        """Write an exchange that has ended, and count what it used."""
        with self._reading:
            if self.ended.is_set() and len(body) > _LATE_BYTES:
                return
            secrets = self._conversation.secrets.with_credentials(credentials)
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
        self, exchange: Exchange, body: bytes, pieces: Sequence[TimedPiece], secrets: Secrets
    ) -> Exchange:
        request, results, _, ids = asked(body, self._names, secrets)
        # A judge repeats the code of its question; an agent's ids are those of answers anyway.
        answer = for_tape(pieces, self._names, secrets, ids if self.use.role else {})
        return msgspec.structs.replace(
            exchange,
            path=_plain(exchange.path),
            request=request,
            results=results,
            answer=answer,
            model=model_in(request, exchange.path),
            tokens=tokens_in(answer),
            turn=len(self._conversation.turns) + 1,
        )

    def _why_lost(self, made: Exchange, pieces: Sequence[TimedPiece], secrets: Secrets) -> str:
        """Return why an exchange must not be on the tape: too much, or a key that is left in it."""
        if not isinstance(self._target, TapeWriter):
            return ""
        data = msgspec.json.encode(made)
        if len(data) > MOST_UNPACKED or sum(len(one.text) for one in pieces) > _MOST_ANSWER:
            return "too long"
        new = data if self._written else data + msgspec.json.encode(self._new_lane())
        text = new.decode("utf-8", "replace")
        if secrets.occur_in(new) or without_keys(text) != text:
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
            talk, cause = self._talks.place(self._n_written, made)
            self._n_bytes += target.add(
                msgspec.structs.replace(
                    made,
                    lane=self._written.lane,
                    number=self._n_written,
                    talk=talk,
                    cause=cause,
                )
            )
        except OutputError as error:
            self.error = self.error or error
            self._conversation.cancelled.set()

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
            asked=self._asked(),
            role=self.use.role,
            agent=self._spec.agent.name,
            version=identity.program if identity is not None else "",
            about=self._about(),
        )

    def _about(self) -> Any:
        """Return what is needed to run the trial again, without secrets and paths."""
        spec = self._spec
        identity = spec.identity
        if identity is not None:  # what is not known names places of this machine
            identity = msgspec.structs.replace(identity, not_covered=())
        about = {"prompt": spec.prompt, "agent": spec.agent, "identity": identity}
        text = msgspec.json.encode(
            self._conversation.secrets.mask_record(msgspec.to_builtins(about))
        )
        return msgspec.json.decode(self._names.hide(without_keys(text.decode())))

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
            differs=[*self._differs.values()],
        )

    def wire(self) -> Wire:
        """Return what the row says of all requests."""
        return Wire(
            requests=self._n_asked,
            answers=self.traffic.seen()["answers"],
            models=[*self._models],
            input_tokens=self._tokens[0],
            output_tokens=self._tokens[1],
            tape=self.use.shown,
            lane=lane.lane if (lane := self._written or self._lane) else 0,
        )

    def warnings(self) -> Iterator[str]:
        """Yield what a reader of the trial should know."""
        if not self._n_asked:
            yield "no request to a model passed the proxy: the agent does not use its base URL"
        for why, n in self._lost.items():
            yield f"{n} exchanges are not on the tape: {why}"


def _common_start(old: Sequence[str], new: Sequence[str]) -> int:
    """Return how many characters two texts have in common before they part."""
    pairs = enumerate(zip("\n".join(old), "\n".join(new), strict=False))
    return next((at for at, (a, b) in pairs if a != b), len("\n".join(new)))


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
