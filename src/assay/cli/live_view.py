"""The live view of a run on a terminal; apart from progress.py because only it needs rich."""

import sys
import time

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from assay.cli.output import unguarded
from assay.cli.tally import Tally, TrialInProgress, clock_text
from assay.records.text import shortened, visible_line

_PER_SECOND = 4
_MAX_SHOWN = 8
_BESIDE_NAMES = 28
"""Columns of the clock, the number of the step and the blanks between."""


class LiveView:
    """Shows a tally until it is stopped, then leaves nothing behind."""

    def __init__(self, tally: Tally, console: Console | None = None) -> None:
        self._tally = tally
        self._console = console or Console(file=unguarded(sys.stderr))
        self._live = Live(
            console=self._console,
            refresh_per_second=_PER_SECOND,
            transient=True,
            get_renderable=self.render,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def start(self) -> None:
        self._live.start()

    def stop(self) -> None:
        self._live.stop()

    def say(self, text: str) -> None:
        """Print a line above what is shown."""
        self._console.print(Text(text), overflow="fold")

    def render(self) -> Group:
        tally = self._tally
        head = Table.grid(padding=(0, 1))
        head.add_row(
            Text("trials", style="bold"),
            ProgressBar(total=max(tally.total, 1), completed=tally.n_done, width=30),
            Text(tally.pace_text()),
        )
        # Copied first: the workers' threads add and remove trials meanwhile.
        running = sorted(list(tally.running.values()), key=lambda one: one.began_s)
        return Group(head, Text(tally.result_text(), style="bold"), *self._rows(running))

    def _rows(self, running: list[TrialInProgress]) -> list[Table | Text]:
        if not running:
            return []
        now_s = time.monotonic()
        room = max(20, self._console.width - _BESIDE_NAMES)
        table = Table.grid(padding=(0, 2))
        for one in running[:_MAX_SHOWN]:
            number = f" #{one.trial}" if one.trial > 1 else ""
            name = shortened(visible_line(one.prompt), room * 3 // 5 - len(number)) + number
            table.add_row(
                Text(f"  {name}", style="cyan"),
                Text(clock_text(now_s - one.began_s), justify="right"),
                Text(f"step {one.n_steps}", style="dim"),
                Text(shortened(visible_line(one.step), room * 2 // 5), style="dim"),
            )
        more = len(running) - _MAX_SHOWN
        return [table, Text(f"  and {more} more", style="dim")] if more > 0 else [table]
