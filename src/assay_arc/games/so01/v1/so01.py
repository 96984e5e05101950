"""Sort the balls: click a column to take its top ball, click another to drop it on its colour."""

import random

import numpy as np
from arcengine import ARCBaseGame, Camera, GameAction, Level, Sprite

# Columns from the left, each from the bottom; a column is done when it is full of one colour.
BOARDS = (
    (3, ("rrg", "ggr", "")),
    (3, ("rgr", "grg", "")),
    (3, ("rgb", "bbr", "ggr", "")),
    (3, ("rgb", "grb", "bgr", "")),
)
COLOURS = {"r": 8, "g": 14, "b": 9}
WALL, EMPTY, HELD_ROW = 2, 5, 1


class So01(ARCBaseGame):  # type: ignore[misc]
    """State: the columns, the ball in hand ("" for none) and the column it came from."""

    def __init__(self, seed: int = 0) -> None:
        self.state: tuple[tuple[str, ...], str, int] = ((), "", -1)
        levels = [_level(capacity, shuffle(columns, seed)) for capacity, columns in BOARDS]
        super().__init__("so01", levels, Camera(background=WALL), False, 1, [6], seed)

    def on_set_level(self, level: Level) -> None:
        """Fill the columns."""
        self.capacity = level.get_data("capacity")
        self.state = (tuple(level.get_data("columns")), "", -1)
        self.draw()

    def step(self) -> None:
        """Take or drop at the column that was clicked."""
        if self.action.id == GameAction.ACTION6:
            data = self.action.data
            target = self.target_at(data.get("x", 0), data.get("y", 0))
            if target is not None:
                self.take_or_drop(target)
        self.complete_action()

    def target_at(self, x: int, y: int) -> int | None:
        """Say which column a click means; all that a click does depends on this alone."""
        cell = self.camera.display_to_grid(x, y)
        if cell is None or cell[0] % 2 == 0:
            return None
        return int(cell[0] // 2)

    def take_or_drop(self, target: int) -> None:
        """Take the top ball, drop the one in hand, or put it back where it was."""
        columns, held, source = self.state
        here = columns[target]
        if not held:
            if here:
                self.state = (_with(columns, target, here[:-1]), here[-1], target)
        elif target == source or (len(here) < self.capacity and (not here or here[-1] == held)):
            self.state = (_with(columns, target, here + held), "", -1)
        self.draw()
        if not self.state[1] and all(self.is_done(column) for column in self.state[0]):
            self.next_level()

    def is_done(self, column: str) -> bool:
        """Say whether a column needs no more work."""
        return not column or (len(column) == self.capacity and len(set(column)) == 1)

    def draw(self) -> None:
        """Paint the columns, and the ball in hand above the column it came from."""
        columns, held, source = self.state
        pixels = self.current_level.get_sprites_by_name("board")[0].pixels
        pixels[:] = WALL
        for i, column in enumerate(columns):
            for j in range(self.capacity):
                ball = COLOURS[column[j]] if j < len(column) else EMPTY
                pixels[HELD_ROW + self.capacity + 1 - j, 2 * i + 1] = ball
        if held:
            pixels[HELD_ROW, 2 * source + 1] = COLOURS[held]


def shuffle(columns: tuple[str, ...], seed: int) -> tuple[str, ...]:
    """Change the order of the columns and the colours as the seed says; seed 0 changes nothing."""
    if seed == 0:
        return columns
    rng = random.Random(seed)
    order, names = list(columns), list(COLOURS)
    rng.shuffle(order)
    rng.shuffle(names)
    table = str.maketrans("".join(COLOURS), "".join(names))
    return tuple(column.translate(table) for column in order)


def _with(columns: tuple[str, ...], at: int, column: str) -> tuple[str, ...]:
    return (*columns[:at], column, *columns[at + 1 :])


def _level(capacity: int, columns: tuple[str, ...]) -> Level:
    size = (2 * len(columns) + 1, capacity + 4)
    board = Sprite(np.full((size[1], size[0]), WALL, dtype=np.int8), name="board")
    return Level([board], grid_size=size, data={"capacity": capacity, "columns": columns})
