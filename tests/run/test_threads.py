"""What threads share in this process: whoever comes first, all of them get the same."""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any

import pytest

from assay import plugins
from assay.graders import frozen
from assay.records.spec import PluginRef
from assay.run import snapshot, workspace

N_THREADS = 8


@pytest.fixture(autouse=True)
def _switch_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def in_threads(work: Callable[[], Any]) -> list[Any]:
    """Call a function in several threads at once; give what it returned or raised in each."""
    ready = threading.Barrier(N_THREADS)
    results: list[Any] = []

    def call() -> None:
        ready.wait()
        try:
            results.append(work())
        except Exception as error:  # noqa: BLE001 - looked at by the test
            results.append(error)

    threads = [threading.Thread(target=call) for _ in range(N_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def fresh_workspace() -> Any:
    """Load the module once more, as a new process has it."""
    spec = spec_from_file_location("fresh_workspace", workspace.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_first_trials_of_a_run_get_the_environment_together() -> None:
    for _ in range(300):
        module = fresh_workspace()
        assert in_threads(module.our_env) == [dict(os.environ)] * N_THREADS


def test_a_changed_environment_is_never_mixed_with_the_one_before(monkeypatch) -> None:
    """Whoever asks after a change gets the change, even while another thread reads it in."""
    for number in range(300):
        monkeypatch.setenv("ASSAY_TEST_CHANGING", str(number))
        found = [env["ASSAY_TEST_CHANGING"] for env in in_threads(workspace.our_env)]
        assert found == [str(number)] * N_THREADS


def test_a_plugin_is_built_once_for_all_threads() -> None:
    """A benchmark may hold what its trials share, so there must not be two of them."""
    for number in range(100):
        ref = PluginRef(name="contains", options={"text": [f"{os.getpid()} {number}"]})
        built = in_threads(lambda ref=ref: plugins.grader(ref))
        assert len({id(one) for one in built}) == 1, built


@pytest.mark.parametrize(
    "get",
    [snapshot._store, snapshot._empty_repository, frozen._bytecode_folder],
    ids=lambda get: get.__name__,
)
def test_what_trials_share_is_made_once_for_all_threads(get) -> None:
    """Two agents that ended at once made the empty repository at once, and git refused one."""
    for _ in range(3):
        get.cache_clear()
        found = in_threads(get)
        assert len(set(map(str, found))) == 1, found
        assert os.path.isdir(found[0])  # noqa: PTH112


def test_what_stood_above_the_workspaces_is_read_before_the_first_agent(tmp_path) -> None:
    for number in range(100):
        found = in_threads(lambda number=number: workspace._at_first(str(tmp_path / str(number))))
        assert len({id(one) for one in found}) == 1
