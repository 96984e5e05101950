"""Play a script until a signal says stop: what `assay mock-model` does."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from assay.testing.model.loading import load_script
from assay.testing.model.server import ScriptedModel


def serve(
    script_path: str | Path,
    port: int = 0,
    log: str | Path | None = None,
    port_file: str | Path | None = None,
    *,
    log_bodies: bool = False,
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM; `on_ready` gets the URL once it listens.

    Call it from the main thread: only that one may take signals.
    """
    script = load_script(script_path)
    with (
        _stop_signals() as stop,
        ScriptedModel(script, port=port, log=log, log_bodies=log_bodies) as model,
    ):
        if port_file is not None:
            _write_whole(Path(port_file), model.url.rsplit(":", 1)[1])
        if on_ready is not None:
            on_ready(model.url)
        stop.wait()


@contextmanager
def _stop_signals() -> Iterator[threading.Event]:
    stop = threading.Event()
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda *_: stop.set()) for number in signals]
    try:
        yield stop
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)


def _write_whole(path: Path, text: str) -> None:
    """Write so that a reader sees nothing or all of it."""
    beside = path.with_name(path.name + ".part")
    beside.write_text(text)
    beside.replace(path)
