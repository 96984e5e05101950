"""Run trials in an asyncio program: `async for trial in assay.arun(...)`."""

import asyncio
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Literal, Self, Unpack

from assay.library.reading import Trial, trials_to_read
from assay.library.run import Agent, Grader, Prompts, RunOptions, RunPlan
from assay.library.trials import Trials
from assay.library.wording import errors_in_python
from assay.library.worker import Progress, Reader
from assay.run.background import Background


class AsyncRun(RunPlan):
    """A run that is about to start, for `async for`; otherwise as Run.

    A loop that is left early tells its agents to end, and does not wait for them: `await
    run.aclose()` does, and so does the end of `async with assay.arun(...) as run:`.
    """

    _background: Background | None = None

    def __aiter__(self) -> AsyncIterator[Trial]:
        return self._trials()

    def _trials(self) -> "_AsyncTrials":
        self._background, reader = self._start()
        return _AsyncTrials(self, self._background, reader)

    async def aclose(self) -> None:
        """End the agents that are still at work; what has finished is kept."""
        if self._background is not None:
            await _closed(self._background)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def collect(self) -> Trials:
        """Run to the end, and return all trials."""
        trials = self._trials()
        rows = [(self._source, row) async for row in trials.rows()]
        return Trials(rows, self._source, self._output)

    async def frame(self, library: Literal["pandas", "polars"] | None = None) -> Any:
        """Run to the end, and return all trials as a data frame; see Trials.frame."""
        return (await self.collect()).frame(library)


class _AsyncTrials(AsyncIterator[Trial]):
    def __init__(self, run: AsyncRun, background: Background, reader: Reader) -> None:
        self._run, self._background, self._reader = run, background, reader
        # An event loop must not wait for agents to end: a thread does.
        self._abandon = weakref.finalize(self, _close_elsewhere, background)

    async def __anext__(self) -> Trial:
        row = await self._next_row()
        if row is None:
            raise StopAsyncIteration
        (trial,) = trials_to_read(row, self._run._source)
        return trial

    async def rows(self) -> AsyncIterator[bytes]:
        """Yield the rows of all trials."""
        while (row := await self._next_row()) is not None:
            yield row

    async def _next_row(self) -> bytes | None:
        background, reader = self._background, self._reader
        try:
            while not reader.rows and not reader.is_over:
                message = background.receive_now()
                if message is None and not background.is_over:
                    await _readable(background)
                else:
                    reader.take(message, background)
        except BaseException:
            self._abandon.detach()
            await _closed(background)
            raise
        if reader.rows:
            return reader.rows.popleft()
        self._abandon.detach()
        await _closed(background)
        self._run._is_complete = True
        return None


async def _readable(background: Background) -> None:
    """Wait until a message, or a part of one, has come."""
    loop, fd = asyncio.get_running_loop(), background.fileno()
    ready = asyncio.Event()
    loop.add_reader(fd, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(fd)


async def _closed(background: Background) -> None:
    """Wait until the run has ended its agents, also if the task is cancelled meanwhile."""
    background.stop()
    closing = asyncio.ensure_future(asyncio.to_thread(background.close))
    try:
        await asyncio.shield(closing)
    except asyncio.CancelledError:
        await closing
        raise


def _close_elsewhere(background: Background) -> None:
    background.stop()
    threading.Thread(target=background.close).start()


@errors_in_python()
def arun(
    prompts: Prompts | None = None,
    *,
    agent: Agent,
    graders: Iterable[Grader] = (),
    k: int | None = None,
    jobs: int = 1,
    progress: Callable[[Progress], object] | None = None,
    **options: Unpack[RunOptions],
) -> AsyncRun:
    """The same as assay.run for asyncio: `async for trial in assay.arun(...)`.

    The event loop is never blocked. A task that is cancelled ends the agents first.
    """
    return AsyncRun(prompts, agent, graders, progress, {"k": k, "jobs": jobs, **options})
