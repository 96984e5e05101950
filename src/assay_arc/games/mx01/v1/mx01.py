"""Paint mixes: a gate lets through only who wears exactly its colour. Level 1 teaches it."""

import numpy as np
from arcengine import ARCBaseGame, Camera, GameAction, Level, Sprite

# "r b y" paint pads, "w" water; gates: "1" red, "2" blue, "3" red+blue, "4" yellow, ... "7" all.
MAPS = (
    (
        "########",
        "#@r.b..#",
        "######3#",
        "######.#",
        "#x.....#",
        "########",
        "########",
        "########",
    ),
    (
        "########",
        "#@.#..x#",
        "#..6...#",
        "#..#####",
        "#y...b.#",
        "#...r..#",
        "########",
        "########",
    ),
    (
        "########",
        "#@..1..#",
        "#.r.#.w#",
        "#.###b.#",
        "#.#x.2.#",
        "#.####.#",
        "#......#",
        "########",
    ),
    (
        "########",
        "#r@b#..#",
        "#...3y.#",
        "#.y.#..#",
        "#####7##",
        "#..5.wr#",
        "#x.#.y.#",
        "########",
    ),
)
MOVES = {"ACTION1": (0, -1), "ACTION2": (0, 1), "ACTION3": (-1, 0), "ACTION4": (1, 0)}
PAINT = {"r": 1, "b": 2, "y": 4}
# What each mixture of red, blue and yellow looks like.
LOOKS = (0, 8, 9, 15, 11, 12, 14, 13)
FLOOR, WALL, WATER, EXIT, GATE_EDGE = 4, 2, 10, 6, 3


class Mx01(ARCBaseGame):  # type: ignore[misc]
    """State: x, y and the mixture worn, as bits of red, blue and yellow."""

    def __init__(self, seed: int = 0) -> None:
        self.state = (0, 0, 0)
        levels = [_level(mirror(rows, seed)) for rows in MAPS]
        super().__init__("mx01", levels, Camera(background=FLOOR), False, 1, [1, 2, 3, 4], seed)

    def on_set_level(self, level: Level) -> None:
        """Put the player at the start, unpainted."""
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
        """Move, take the paint that lies there, and leave by the exit."""
        x, y, worn = self.state
        cell = self.rows[y + dy][x + dx]
        if cell == "#" or (cell.isdigit() and int(cell) != worn):
            return
        worn = 0 if cell == "w" else worn | PAINT.get(cell, 0)
        self.state = (x + dx, y + dy, worn)
        self.draw()
        if cell == "x":
            self.next_level()

    def draw(self) -> None:
        """Paint the board from the state: two by two pixels for each cell."""
        x, y, worn = self.state
        pixels = self.current_level.get_sprites_by_name("board")[0].pixels
        for j, row in enumerate(self.rows):
            for i, cell in enumerate(row):
                pixels[2 * j : 2 * j + 2, 2 * i : 2 * i + 2] = _look(cell)
        pixels[2 * y : 2 * y + 2, 2 * x : 2 * x + 2] = ((0, LOOKS[worn]), (LOOKS[worn], 0))


def mirror(rows: tuple[str, ...], seed: int) -> tuple[str, ...]:
    """Turn the map over as the seed says; the shortest way keeps its length."""
    if seed & 1:
        rows = tuple(row[::-1] for row in rows)
    return rows[::-1] if seed & 2 else rows


def _look(cell: str) -> tuple[tuple[int, int], tuple[int, int]]:
    """Give the two by two pixels of one cell."""
    if cell.isdigit():
        colour = LOOKS[int(cell)]
        return ((colour, GATE_EDGE), (GATE_EDGE, colour))
    if cell in PAINT:
        colour = LOOKS[PAINT[cell]]
        return ((colour, colour), (colour, FLOOR))
    colour = {"#": WALL, "w": WATER, "x": EXIT}.get(cell, FLOOR)
    return ((colour, colour), (colour, colour))


def _level(rows: tuple[str, ...]) -> Level:
    size = (2 * len(rows[0]), 2 * len(rows))
    board = Sprite(np.full((size[1], size[0]), FLOOR, dtype=np.int8), name="board")
    return Level([board], grid_size=size, data={"rows": rows})
