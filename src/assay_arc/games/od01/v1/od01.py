"""Click the one tile that differs from all others; the third wrong click ends the game."""

import random

import numpy as np
from arcengine import ARCBaseGame, Camera, GameAction, Level, Sprite

# For each level: tiles in a row, the ordinary tile and the odd one, three by three pixels each.
KINDS = (
    (3, ("999", "999", "999"), ("888", "888", "888")),
    (4, ("eee", "e.e", "eee"), ("eee", "eee", "eee")),
    (4, ("b..", "bb.", "bbb"), ("..b", ".bb", "bbb")),
    (5, ("f.f", ".f.", "f.f"), (".f.", "fff", ".f.")),
    (5, ("cc.", "c.9", ".99"), ("99.", "9.c", ".cc")),
)
TURNS = 4
FLOOR, MISS, LIVES = 4, 2, 3


class Od01(ARCBaseGame):  # type: ignore[misc]
    """State: which tiles were clicked in vain."""

    def __init__(self, seed: int = 0) -> None:
        self.state: tuple[int, ...] = ()
        rng = random.Random(seed)
        levels = [_level(kind, rng) for kind in KINDS]
        super().__init__("od01", levels, Camera(background=FLOOR), False, 1, [6], seed)

    def on_set_level(self, level: Level) -> None:
        """Lay the tiles out."""
        self.odd = level.get_data("odd")
        self.side = level.get_data("side")
        self.state = ()
        self.draw()

    def step(self) -> None:
        """Judge the tile that was clicked; a click between tiles does nothing."""
        if self.action.id == GameAction.ACTION6:
            data = self.action.data
            target = self.target_at(data.get("x", 0), data.get("y", 0))
            if target is not None:
                self.judge(target)
        self.complete_action()

    def target_at(self, x: int, y: int) -> int | None:
        """Say which tile a click means; all that a click does depends on this alone."""
        cell = self.camera.display_to_grid(x, y)
        if cell is None or cell[0] % 4 == 3 or cell[1] % 4 == 3:
            return None
        return int(cell[1] // 4 * self.side + cell[0] // 4)

    def judge(self, target: int) -> None:
        """Win the level or note a miss; a tile already missed is not counted again."""
        if target == self.odd:
            self.next_level()
            return
        self.state = tuple(sorted({*self.state, target}))
        self.draw()
        if len(self.state) >= LIVES:
            self.lose()

    def draw(self) -> None:
        """Paint the tiles, and those missed in plain grey."""
        pixels = self.current_level.get_sprites_by_name("board")[0].pixels
        plain, odd = self.current_level.get_data("tiles")
        for tile in range(self.side * self.side):
            j, i = divmod(tile, self.side)
            look = odd if tile == self.odd else plain
            area = MISS if tile in self.state else look
            pixels[4 * j : 4 * j + 3, 4 * i : 4 * i + 3] = area


def _level(kind: tuple[int, tuple[str, ...], tuple[str, ...]], rng: random.Random) -> Level:
    """Choose where the odd tile lies and how the level is turned."""
    side, plain, odd = kind
    turns = rng.randrange(TURNS)
    tiles = [np.rot90(_pixels(rows), turns).tolist() for rows in (plain, odd)]
    size = 4 * side - 1
    board = Sprite(np.full((size, size), FLOOR, dtype=np.int8), name="board")
    data = {"side": side, "tiles": tiles, "odd": rng.randrange(side * side)}
    return Level([board], grid_size=(size, size), data=data)


def _pixels(rows: tuple[str, ...]) -> np.ndarray:
    return np.array([[FLOOR if c == "." else int(c, 16) for c in row] for row in rows])
