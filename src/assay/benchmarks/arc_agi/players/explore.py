"""A map of the pictures seen in one level and the moves between them; no knowledge of any game."""

from collections import deque

Move = tuple[str, int, int]
SIDE = 64
MAX_CLICKS = 48


class LevelMap:
    """Pictures as nodes, moves as edges; finds the shortest known way to an untried move."""

    def __init__(self, start: str) -> None:
        self.start = start
        self.edges: dict[str, dict[Move, str]] = {}
        self.untried: dict[str, list[Move]] = {}

    def add(self, picture: str, moves: list[Move]) -> None:
        """Note a picture and what could be tried in it, unless it is known already."""
        if picture not in self.untried:
            self.untried[picture] = list(moves)
            self.edges[picture] = {}

    def tried(self, picture: str, move: Move, result: str) -> None:
        """Note what a move did."""
        self.edges[picture][move] = result
        if move in self.untried[picture]:
            self.untried[picture].remove(move)

    def forget(self, picture: str, move: Move) -> None:
        """Drop a move that did not do what it did before: the picture hides something."""
        self.edges[picture].pop(move, None)

    def way_to_untried(self, picture: str) -> list[Move] | None:
        """Give the shortest known way to a picture with an untried move, that move included."""
        queue: deque[str] = deque([picture])
        came: dict[str, tuple[str, Move] | None] = {picture: None}
        while queue:
            here = queue.popleft()
            if self.untried.get(here):
                return [*_way(came, here), self.untried[here][0]]
            for move, there in self.edges.get(here, {}).items():
                if there not in came:
                    came[there] = (here, move)
                    queue.append(there)
        return None


def possible_moves(picture: str, actions: list[str]) -> list[Move]:
    """List what can be tried in a picture: plain actions, and a click in each patch of colour."""
    moves: list[Move] = [(name, -1, -1) for name in actions if name != "ACTION6"]
    if "ACTION6" in actions:
        moves += [("ACTION6", x, y) for x, y in patches(picture)[:MAX_CLICKS]]
    return moves


def patches(picture: str) -> list[tuple[int, int]]:
    """Give one pixel of each patch of equal colour, small patches first."""
    unseen = set(range(SIDE * SIDE))
    found = []
    while unseen:
        patch = _flood(picture, unseen)
        middle = sorted(patch)[len(patch) // 2]
        found.append((len(patch), middle % SIDE, middle // SIDE))
    return [(x, y) for _, x, y in sorted(found)]


def _flood(picture: str, unseen: set[int]) -> list[int]:
    first = unseen.pop()
    patch, stack = [first], [first]
    while stack:
        at = stack.pop()
        for near in _neighbours(at):
            if near in unseen and picture[near] == picture[first]:
                unseen.discard(near)
                patch.append(near)
                stack.append(near)
    return patch


def _neighbours(at: int) -> list[int]:
    near = [at - SIDE, at + SIDE]
    if at % SIDE:
        near.append(at - 1)
    if at % SIDE < SIDE - 1:
        near.append(at + 1)
    return [n for n in near if 0 <= n < SIDE * SIDE]


def _way(came: dict[str, tuple[str, Move] | None], end: str) -> list[Move]:
    way: list[Move] = []
    step = came[end]
    while step is not None:
        way.append(step[1])
        step = came[step[0]]
    return way[::-1]
