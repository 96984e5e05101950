"""Walk to the exit; a door opens for whoever carries the key of its colour."""

import numpy as np
from arcengine import ARCBaseGame, Camera, GameAction, Level, Sprite

# "#" wall, "@" start, "x" exit, "a b c" keys, "A B C" doors.
MAPS = (
    (
        "########",
        "#@.....#",
        "#.####.#",
        "#.#..#.#",
        "#.#.x..#",
        "#.####.#",
        "#......#",
        "########",
    ),
    (
        "########",
        "#@..#..#",
        "#...#..#",
        "#.a.A.x#",
        "#...#..#",
        "#...#..#",
        "########",
        "########",
    ),
    (
        "########",
        "#@.#..a#",
        "#..B...#",
        "#..#####",
        "#b.#..x#",
        "#..A...#",
        "#..#...#",
        "########",
    ),
    (
        "########",
        "#a.#c.##",
        "#..A..##",
        "####B###",
        "#@..b..#",
        "#.####C#",
        "#..#x..#",
        "########",
    ),
    (
        "########",
        "#x.A.B.#",
        "####.#.#",
        "#bCa.#.#",
        "#.####.#",
        "#..#c#.#",
        "#@.....#",
        "########",
    ),
)
KEYS = "abc"
MOVES = {"ACTION1": (0, -1), "ACTION2": (0, 1), "ACTION3": (-1, 0), "ACTION4": (1, 0)}
FLOOR, WALL, PLAYER, EXIT = 4, 2, 0, 14
KEY_COLOURS = (8, 9, 11)
DOOR_COLOURS = (13, 10, 12)


class Ky01(ARCBaseGame):  # type: ignore[misc]
    """State: x, y and the set of keys held, as bits."""

    def __init__(self, seed: int = 0) -> None:
        self.state = (0, 0, 0)
        self.colours = np.roll(np.arange(3), seed // 4 % 3)
        levels = [_level(mirror(rows, seed)) for rows in MAPS]
        super().__init__("ky01", levels, Camera(background=FLOOR), False, 1, [1, 2, 3, 4], seed)

    def on_set_level(self, level: Level) -> None:
        """Put the player at the start."""
        self.rows = level.get_data("rows")
        y = next(i for i, row in enumerate(self.rows) if "@" in row)
        self.state = (self.rows[y].index("@"), y, 0)
        self.draw()

    def step(self) -> None:
        """Walk one cell if it is free."""
        if self.action.id != GameAction.RESET:
            self.walk(*MOVES.get(self.action.id.name, (0, 0)))
        self.complete_action()

    def walk(self, dx: int, dy: int) -> None:
        """Move, pick up what lies there, and leave by the exit."""
        x, y, held = self.state
        cell = self.rows[y + dy][x + dx]
        shut = cell in "ABC" and not held >> KEYS.index(cell.lower()) & 1
        if cell == "#" or shut:
            return
        held |= 1 << KEYS.index(cell) if cell in KEYS else 0
        self.state = (x + dx, y + dy, held)
        self.draw()
        if cell == "x":
            self.next_level()

    def draw(self) -> None:
        """Paint the board from the state."""
        x, y, held = self.state
        pixels = self.current_level.get_sprites_by_name("board")[0].pixels
        for j, row in enumerate(self.rows):
            for i, cell in enumerate(row):
                pixels[j, i] = self.colour(cell, held)
        pixels[y, x] = PLAYER

    def colour(self, cell: str, held: int) -> int:
        """Give the colour of one cell."""
        if cell in KEYS:
            k = KEYS.index(cell)
            return FLOOR if held >> k & 1 else KEY_COLOURS[self.colours[k]]
        if cell in "ABC":
            k = KEYS.index(cell.lower())
            return FLOOR if held >> k & 1 else DOOR_COLOURS[self.colours[k]]
        return {"#": WALL, "x": EXIT}.get(cell, FLOOR)


def mirror(rows: tuple[str, ...], seed: int) -> tuple[str, ...]:
    """Turn the map over as the seed says; the shortest way keeps its length."""
    if seed & 1:
        rows = tuple(row[::-1] for row in rows)
    return rows[::-1] if seed & 2 else rows


def _level(rows: tuple[str, ...]) -> Level:
    size = (len(rows[0]), len(rows))
    board = Sprite(np.full((size[1], size[0]), FLOOR, dtype=np.int8), name="board")
    return Level([board], grid_size=size, data={"rows": rows})
