"""What the tests of graders share: one question to one grader, as a user writes it behind -g."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from assay import plugins
from assay.pipeline.stages import AskingHost
from assay.plugin import Trial
from assay.records.capture import Grade
from assay.run.served import close_served


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    close_served()


@pytest.fixture
def ask() -> Callable[..., Grade]:
    """Put one trial to a grader, in the main thread."""

    def put(text: str, output: str = "", timeout_s: float = 10.0, **fields: Any) -> Grade:
        grader = plugins.grader(plugins.grader_ref(text, timeout_s))
        return grader.grade(Trial(**{"input": "?", "output": output, **fields}), AskingHost())

    return put


@pytest.fixture
def ask_apart(ask: Callable[..., Grade]) -> Callable[..., Grade]:
    """The same in another thread, where `capture` and `grade -j 2` ask."""

    def put(*args: Any, **fields: Any) -> Grade:
        results: list[Any] = []

        def work() -> None:
            try:
                results.append(ask(*args, **fields))
            except Exception as error:  # noqa: BLE001
                results.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join(60)
        if isinstance(results[0], Exception):
            raise results[0]
        return results[0]

    return put


@pytest.fixture
def script(tmp_path: Path) -> Callable[..., str]:
    """Write a grader file."""

    def write(source: str, name: str = "grader.py", *, executable: bool = False) -> str:
        path = tmp_path / name
        path.write_text(source)
        path.chmod(0o755 if executable else 0o644)
        return str(path)

    return write
