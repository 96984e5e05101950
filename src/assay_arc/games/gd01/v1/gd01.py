"""Reach the exit unseen: guards walk one cell for each action; to meet one ends the game."""

import numpy as np
from arcengine import ARCBaseGame, Camera, GameAction, Level, Sprite

# "#" wall, "@" start, "x" exit; each guard's beat is the list of cells it walks, there and back.
MAPS = (
    (
        "########",
        "#@.....#",
        "#.###..#",
        "#.###..#",
        "#.....x#",
        "########",
        "########",
        "########",
    ),
    (
        "########",
        "#@..####",
        "###.####",
        "#......#",
        "####.###",
        "#......#",
        "#.x#####",
        "########",
    ),
    (
        "########",
        "#@.#..x#",
        "#......#",
        "#.#.##.#",
        "#......#",
        "#.#.##.#",
        "#......#",
        "########",
    ),
    (
        "########",
        "#@#....#",
        "#.#.##.#",
        "#.#.#..#",
        "#....#.#",
        "#.##...#",
        "#....#x#",
        "########",
    ),
)
BEATS = (
    (((5, 1), (5, 2), (5, 3), (5, 4)),),
    (((1, 3), (2, 3), (3, 3), (4, 3), (5, 3), (6, 3)), ((1, 5), (2, 5), (3, 5), (4, 5))),
    (((3, 2), (3, 3), (3, 4), (3, 5), (3, 6)), ((6, 5), (6, 4), (6, 3), (6, 2))),
    (((3, 1), (3, 2), (3, 3), (3, 4)), ((4, 5), (5, 5), (6, 5), (6, 4), (6, 3))),
)
MOVES = {"ACTION1": (0, -1), "ACTION2": (0, 1), "ACTION3": (-1, 0), "ACTION4": (1, 0)}
FLOOR, WALL, PLAYER, EXIT, GUARD = 4, 2, 9, 14, 8


class Gd01(ARCBaseGame):  # type: ignore[misc]
    """State: x, y and how many actions the guards have walked, modulo all their beats."""

    def __init__(self, seed: int = 0) -> None:
        self.state = (0, 0, 0)
        self.flip = seed
        levels = [
            _level(mirror(rows, seed), mirror_beats(beats, rows, seed))
            for rows, beats in zip(MAPS, BEATS, strict=True)
        ]
        super().__init__("gd01", levels, Camera(background=FLOOR), False, 1, [1, 2, 3, 4, 5], seed)

    def on_set_level(self, level: Level) -> None:
        """Put the player and the guards where they begin."""
        self.rows = level.get_data("rows")
        self.beats = level.get_data("beats")
        self.period = int(np.lcm.reduce([2 * len(beat) - 2 for beat in self.beats]))
        y = next(i for i, row in enumerate(self.rows) if "@" in row)
        self.state = (self.rows[y].index("@"), y, 0)
        self.draw()

    def step(self) -> None:
        """Walk or wait; then every guard walks."""
        if self.action.id != GameAction.RESET:
            self.walk(*MOVES.get(self.action.id.name, (0, 0)))
        self.complete_action()

    def walk(self, dx: int, dy: int) -> None:
        """Move player and guards at once; meeting or passing through a guard is the end."""
        x, y, t = self.state
        if self.rows[y + dy][x + dx] == "#":
            dx, dy = 0, 0
        here, there = (x, y), (x + dx, y + dy)
        before, after = self.guards(t), self.guards(t + 1)
        self.state = (*there, (t + 1) % self.period)
        self.draw()
        met = there in after
        passed = any(a == there and b == here for a, b in zip(before, after, strict=True))
        if met or passed:
            self.lose()
        elif self.rows[there[1]][there[0]] == "x":
            self.next_level()

    def guards(self, t: int) -> list[tuple[int, int]]:
        """Say where the guards are after t actions."""
        return [_on_beat(beat, t) for beat in self.beats]

    def draw(self) -> None:
        """Paint the board from the state."""
        x, y, t = self.state
        pixels = self.current_level.get_sprites_by_name("board")[0].pixels
        for j, row in enumerate(self.rows):
            for i, cell in enumerate(row):
                pixels[j, i] = {"#": WALL, "x": EXIT}.get(cell, FLOOR)
        pixels[y, x] = PLAYER
        for i, j in self.guards(t):
            pixels[j, i] = GUARD


def mirror(rows: tuple[str, ...], seed: int) -> tuple[str, ...]:
    """Turn the map over as the seed says; the shortest way keeps its length."""
    if seed & 1:
        rows = tuple(row[::-1] for row in rows)
    return rows[::-1] if seed & 2 else rows


def mirror_beats(
    beats: tuple[tuple[tuple[int, int], ...], ...], rows: tuple[str, ...], seed: int
) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Turn the guards' beats over with their map."""
    w, h = len(rows[0]) - 1, len(rows) - 1
    return tuple(
        tuple((w - x if seed & 1 else x, h - y if seed & 2 else y) for x, y in beat)
        for beat in beats
    )


def _on_beat(beat: tuple[tuple[int, int], ...], t: int) -> tuple[int, int]:
    turn = len(beat) - 1
    at = t % (2 * turn)
    return beat[at if at <= turn else 2 * turn - at]


def _level(rows: tuple[str, ...], beats: tuple[tuple[tuple[int, int], ...], ...]) -> Level:
    size = (len(rows[0]), len(rows))
    board = Sprite(np.full((size[1], size[0]), FLOOR, dtype=np.int8), name="board")
    return Level([board], grid_size=size, data={"rows": rows, "beats": beats})
