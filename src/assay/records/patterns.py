"""Regular expressions that are matched in time that grows only with the text.

A schema's paths have them, and the replies of a scripted user: both meet what an agent wrote.

Python's own engine tries one way after the other: `(a+)+$` on 40 characters takes hours, in which
no other thread runs, so that neither a time limit nor Ctrl-C is heard. Here all ways are followed
at once, and what a set of ways becomes with a character is remembered: an automaton that is built
while it runs. Syntax and the meaning of single characters are Python's own. What cannot be matched
like that (lookaround, back references) is refused.

Why not google-re2, which is linear too: its \\w, \\d, \\s and \\b mean ASCII, its $ does not match
before a last line feed, and it has no \\Z, so that schemas in use would read other events. In its
slow way it does 0.1 MB/s for `(a|b)*a(a|b){900}c`: the work of a turn would be counted as here.

Why not `re` in a process with a time limit, as graders have it: asking one costs no more than
matching here (60 and 120 µs a text on a busy machine), but an adapter starts nothing, and the same
recording must give the same steps on a slow machine and on a fast one. A limit in seconds does not.
"""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from re import _compiler, _parser  # type: ignore[attr-defined]
from re import _constants as code  # type: ignore[attr-defined]
from typing import Any

_MOST_NODES = 2_000
_MOST_MOVES = 20_000
"""Remembered by one pattern, before it starts anew."""
_MOST_PATTERNS = 200
"""A pattern may come from the event itself: then there is a new one in each."""
_ONE_CHARACTER = (code.LITERAL, code.NOT_LITERAL, code.ANY, code.IN)
_EDGES = (code.AT_BEGINNING, code.AT_BEGINNING_STRING, code.AT_END, code.AT_END_STRING)
_REPEATS = (code.MAX_REPEAT, code.MIN_REPEAT)
_REFUSED = (re.error, OverflowError, RecursionError)
_TURN_WORK = 50_000_000
"""Units that the patterns may use for one turn of an agent, which take a few seconds."""


class UnsupportedPatternError(ValueError):
    """A regular expression that cannot be matched in bounded time."""


class Work:
    """What is left for the patterns of one turn; counted, not timed: the same lines, the same end.

    A pattern that has used it up matches nothing any more.
    """

    def __init__(self, left: int = _TURN_WORK) -> None:
        self._left = left
        self.gave_up = False

    def use(self, n: int) -> bool:
        self._left -= n
        self.gave_up = self.gave_up or self._left < 0
        return not self.gave_up

    @contextmanager
    def here(self) -> Iterator[None]:
        """Use it for all patterns that this thread matches meanwhile."""
        _here.work, self.gave_up = self, self._left < 0
        try:
            yield
        finally:
            _here.work = None


_here = threading.local()


def work_here() -> Work:
    """Return what Work.here has set for this thread, or else enough for one text."""
    return getattr(_here, "work", None) or Work()


class _Ways:
    """A set of nodes in which the match may be, and where each character leads from it."""

    __slots__ = ("moves", "nodes")

    def __init__(self, nodes: frozenset[int]) -> None:
        self.nodes = nodes
        self.moves: dict[Any, _Ways] = {}


_MATCHED = _Ways(frozenset())


class Pattern:
    """A regular expression as a graph of nodes; node 0 is the end of a match."""

    def __init__(self, text: str) -> None:
        self._nodes: list[tuple[str, Any, Any]] = [("end", None, None)]
        self._conditions: list[Any] = []
        self._at_edges = True
        """Whether all conditions can only hold at the beginning or the end of a text."""
        self._size = 0
        try:
            parsed = _parser.parse(text)
            self._parsed = parsed
            self._first = self._sequence(parsed, parsed.state.flags, 0)
            self._cost = _cost(len(self._conditions), at_edges=self._at_edges)
        except _REFUSED as error:
            raise UnsupportedPatternError(str(error)) from error
        self._known: dict[frozenset[int], _Ways] = {}
        self._n_moves = 0

    def search(self, text: str, work: Work) -> bool:
        """Whether it matches anywhere."""
        return self._run(text, work, anywhere=True)

    def match(self, text: str, work: Work) -> bool:
        """Whether it matches the whole text."""
        return self._run(text, work, anywhere=False)

    def _run(self, text: str, work: Work, *, anywhere: bool) -> bool:
        if not work.use(len(text) * self._cost):
            return False
        ways = self._ways(frozenset({self._first, -1} if anywhere else {self._first}))
        for move in self._moves(text) if self._conditions else text:
            after = ways.moves.get(move)
            if after is None:
                after = self._move(ways, move, work)
                if not after.nodes or work.gave_up:
                    return after is _MATCHED
            ways = after
        return 0 in self._reached(ways.nodes, self._met(text, len(text)))

    def _moves(self, text: str) -> Iterator[tuple[tuple[bool, ...], str]]:
        nowhere, last = (False,) * len(self._conditions), len(text) - 1
        for place, character in enumerate(text):
            # Before the last character too, where $ holds if it is a line feed.
            looked = not self._at_edges or place in (0, last)
            yield self._met(text, place) if looked else nowhere, character

    def _move(self, ways: _Ways, move: Any, work: Work) -> _Ways:
        """Follow all ways over one character; those that end there are not remembered."""
        met, character = move if self._conditions else ((), move)
        reached = self._reached(ways.nodes, met)
        work.use(20 + 20 * len(reached))
        anywhere = -1 in ways.nodes
        if anywhere and 0 in reached:
            return _MATCHED
        ones = [self._nodes[n] for n in reached if self._nodes[n][0] == "one"]
        found = {then for _, what, then in ones if what.match(character)}
        after = self._ways(frozenset(found | {self._first, -1} if anywhere else found))
        if not after.nodes:
            return after
        ways.moves[move] = after
        self._n_moves += 1
        if self._n_moves > _MOST_MOVES:
            self._known, self._n_moves = {}, 0
        return after

    def _ways(self, nodes: frozenset[int]) -> _Ways:
        return self._known.setdefault(nodes, _Ways(nodes))

    def _met(self, text: str, place: int) -> tuple[bool, ...]:
        """Which of ^, $ and \\b hold at a place of the text."""
        if not self._conditions:
            return ()
        return tuple(condition.match(text, place) is not None for condition in self._conditions)

    def _reached(self, nodes: frozenset[int], met: tuple[bool, ...]) -> set[int]:
        """Add the nodes that are reached without a character."""
        reached: set[int] = set()
        waiting = [n for n in nodes if n >= 0]  # -1 only marks a search
        while waiting:
            number = waiting.pop()
            if number in reached:
                continue
            reached.add(number)
            kind, what, then = self._nodes[number]
            if kind == "any":
                waiting += what
            elif kind == "if" and met[what]:
                waiting.append(then)
        return reached

    def _sequence(self, items: Any, flags: int, then: int) -> int:
        """Add the nodes for some items, from the last to the first; return where they begin."""
        self._count()
        for item in reversed(list(items)):
            then = self._item(item, flags, then)
        return then

    def _item(self, item: Any, flags: int, then: int) -> int:
        kind, what = item
        if kind in _ONE_CHARACTER:
            return self._add("one", self._compiled(item, flags), then)
        if kind is code.AT:
            self._conditions.append(self._compiled(item, flags))
            self._at_edges &= what in _EDGES and not flags & re.MULTILINE
            return self._add("if", len(self._conditions) - 1, then)
        if kind is code.BRANCH:
            return self._add("any", [self._sequence(each, flags, then) for each in what[1]], None)
        if kind is code.SUBPATTERN:
            _, added, removed, items = what
            return self._sequence(items, (flags | added) & ~removed, then)
        if kind in _REPEATS:
            least, most, items = what
            return self._repeat(least, most, items, flags, then)
        msg = f"{str(kind).lower().replace('_', ' ')} is not supported"
        raise UnsupportedPatternError(msg)

    def _repeat(self, least: int, most: Any, items: Any, flags: int, then: int) -> int:
        if most is code.MAXREPEAT:
            begin = self._add("any", [then], None)
            self._nodes[begin][1].append(self._sequence(items, flags, begin))
        else:
            begin = then
            for _ in range(most - least):
                begin = self._add("any", [then, self._sequence(items, flags, begin)], None)
        for _ in range(least):
            begin = self._sequence(items, flags, begin)
        return begin

    def _compiled(self, item: Any, flags: int) -> Any:
        """Compile one item by itself: Python knows best what it means under these flags."""
        alone = _parser.SubPattern(self._parsed.state, [item])
        return _compiler.compile(alone, flags & ~re.DEBUG)

    def _add(self, kind: str, what: Any, then: Any) -> int:
        self._count()
        self._nodes.append((kind, what, then))
        return len(self._nodes) - 1

    def _count(self) -> None:
        self._size += 1
        if self._size > _MOST_NODES:
            msg = "it is too large"
            raise UnsupportedPatternError(msg)


def _cost(n_conditions: int, *, at_edges: bool) -> int:
    """Units of work for a character whose move is known."""
    if not n_conditions:
        return 1
    return 3 if at_edges else 10 * n_conditions


_patterns: dict[str, Pattern | None] = {}


def pattern_of(text: str) -> Pattern | None:
    """Return a compiled pattern, or None if there is none for this text."""
    if text not in _patterns:
        if len(_patterns) >= _MOST_PATTERNS:
            _patterns.clear()
        try:
            _patterns[text] = Pattern(text)
        except UnsupportedPatternError:
            _patterns[text] = None
    return _patterns.get(text)
