"""Light every lamp: ACTION5 toggles the one under the cursor and those beside, ACTION7 undoes."""

import numpy as np
from arcengine import ARCBaseGame, Camera, Level, Sprite

# Three rows of three lamps, "1" lit; the cursor starts in the middle.
MAPS = ("101000101", "001011111", "110100000", "110010011", "000010010")
MOVES = {"ACTION1": (0, -1), "ACTION2": (0, 1), "ACTION3": (-1, 0), "ACTION4": (1, 0)}
SIZE = 3
WALL, DARK, FLASH, CURSOR = 2, 5, 0, 6
LIT = (11, 14, 9, 12)


class Tg01(ARCBaseGame):  # type: ignore[misc]
    """State: x, y of the cursor, the lamps as bits, and the earlier lamps for undo."""

    def __init__(self, seed: int = 0) -> None:
        self.state: tuple[int, int, int, tuple[int, ...]] = (1, 1, 0, ())
        self.flashing = 0
        self.lit = LIT[seed % len(LIT)]
        levels = [_level(mirror(lamps, seed)) for lamps in MAPS]
        super().__init__(
            "tg01", levels, Camera(background=WALL), False, 1, [1, 2, 3, 4, 5, 7], seed
        )

    def on_set_level(self, level: Level) -> None:
        """Light the first lamps and put the cursor in the middle."""
        lamps = level.get_data("lamps")
        self.state = (1, 1, int(lamps[::-1], 2), ())
        self.flashing = 0
        self.draw()

    def step(self) -> None:
        """Do the action; a toggle flashes for two frames before it shows its result."""
        name = self.action.id.name
        if self.flashing:
            self.flash()
        elif name == "ACTION5":
            self.flashing = 2
            self.draw(self.touched())
        else:
            self.move_or_undo(name)
            self.complete_action()

    def move_or_undo(self, name: str) -> None:
        """Move the cursor, or take the last toggle back."""
        x, y, lamps, past = self.state
        if name in MOVES:
            x = min(max(x + MOVES[name][0], 0), SIZE - 1)
            y = min(max(y + MOVES[name][1], 0), SIZE - 1)
        elif name == "ACTION7" and past:
            lamps, past = past[-1], past[:-1]
        self.state = (x, y, lamps, past)
        self.draw()

    def flash(self) -> None:
        """Go on with the animation; its last frame is the toggled board."""
        self.flashing -= 1
        if self.flashing:
            self.draw()
            return
        x, y, lamps, past = self.state
        self.state = (x, y, lamps ^ self.touched(), (*past, lamps))
        self.draw()
        self.complete_action()
        if self.state[2] == (1 << SIZE * SIZE) - 1:
            self.next_level()

    def touched(self) -> int:
        """Give the lamps a toggle would change, as bits."""
        x, y = self.state[:2]
        cells = [(x, y), (x - 1, y), (x + 1, y), (x, y - 1), (x, y + 1)]
        inside = [(i, j) for i, j in cells if 0 <= i < SIZE and 0 <= j < SIZE]
        return sum(1 << j * SIZE + i for i, j in inside)

    def draw(self, flashed: int = 0) -> None:
        """Paint each lamp as three by three pixels inside a frame; the cursor is its frame."""
        x, y, lamps, _ = self.state
        pixels = self.current_level.get_sprites_by_name("board")[0].pixels
        pixels[:] = WALL
        top, left = 5 * y, 5 * x
        pixels[top : top + 6, left : left + 6] = CURSOR
        for bit in range(SIZE * SIZE):
            j, i = divmod(bit, SIZE)
            colour = FLASH if flashed >> bit & 1 else self.lit if lamps >> bit & 1 else DARK
            pixels[5 * j + 1 : 5 * j + 5, 5 * i + 1 : 5 * i + 5] = colour


def mirror(lamps: str, seed: int) -> str:
    """Turn the board over as the seed says; the shortest solution keeps its length."""
    rows = [lamps[i : i + SIZE] for i in range(0, SIZE * SIZE, SIZE)]
    if seed & 1:
        rows = [row[::-1] for row in rows]
    return "".join(rows[::-1] if seed & 2 else rows)


def _level(lamps: str) -> Level:
    board = Sprite(np.full((16, 16), WALL, dtype=np.int8), name="board")
    return Level([board], grid_size=(16, 16), data={"lamps": lamps})
