"""Do the work of this process's threads on a Ray cluster.

The threads stay here and wait: budgets, limits and retries, the graders and the one writer of the
output are the same as without a cluster.
"""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from assay.errors import AssayError, ClusterGone, InputError, PluginError
from assay.executors import LocalExecutor

_WAIT_S = 0.2
_WAIT_PER_TASK_S = 0.001
_LONGEST_WAIT_S = 2.0
_CONNECT_S = 10.0
_LOOK_S = 5.0
_MOST_SILENT_S = 15.0
"""How long the head may be silent. Ray would end this process after a minute."""
_LAST_PORT = 65535
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
"""The first bytes of an HTTP/2 client, which Ray's server answers with its settings."""
_SETTINGS = b"\4"


class RayExecutor(LocalExecutor, frozen=True):
    """Fields are the options a user may set."""

    address: str = ""
    """Of the cluster, as HOST:PORT. Empty is RAY_ADDRESS, a cluster that runs on this machine, or
    else one that is started here and ended with us."""

    def connect(self) -> "Cluster":
        """Join the cluster, or start one."""
        try:
            import ray  # late: an extra, and slow to load
        except ImportError as error:
            msg = f"--executor ray needs {error.name or 'ray'}"
            if error.name != "ray":
                msg += f", which cannot be loaded: {error}"
            hint = "in a checkout of Assay: pip install '.[ray]'"
            raise PluginError(msg, hint=hint) from error
        if not ray.is_initialized():
            _keep_stdout_clean(ray)
            _join(ray, self.address)
        return Cluster(ray)


def _keep_stdout_clean(ray: Any) -> None:
    # Ray prints to stdout, where our rows may go, that a node has died; a lost trial says so too.
    ray._private.worker.print_to_stdstream = lambda *arguments, **more: None


def _join(ray: Any, address: str) -> None:
    # Lines that workers print are the agents' and ours, and have their places already.
    more = {"log_to_driver": False, "configure_logging": False, "job_config": _job_config(ray)}
    on_term = signal.getsignal(signal.SIGTERM)
    found = _require_address(address) or _address_here(ray)
    try:
        if found:
            ray._raylet.GcsClient(address=found)  # ray.init would try for 20 s with a wrong token
            ray.init(address=found, **more)
        else:
            ray.init(address="local", include_dashboard=False, **more)
    except (ValueError, RuntimeError, OSError, ray.exceptions.RayError) as error:
        why = " ".join(str(error).split())
        msg = f"cannot join the Ray cluster {found or 'of this machine'}: {why}"
        hint = "this machine must be a node of it: ray start --address HOST:PORT --num-cpus 0"
        if "AuthToken" in why:
            hint = "set RAY_AUTH_MODE=token here too, and copy ~/.ray/auth_token from its head"
        if "Version mismatch" in why or "was started with" in why:
            hint = "all machines need the same versions of Python and Ray"
        raise AssayError(msg, hint=hint) from error
    finally:
        signal.signal(signal.SIGTERM, on_term)  # which Ray replaces


def _require_address(address: str) -> str:
    """Return the address that the user names, if any; refuse one that is no cluster's."""
    if address:
        _require_answer(address, f"--address {address}")
        return address
    address = os.environ.get("RAY_ADDRESS", "")
    if address and address not in ("auto", "local"):
        _require_answer(address, f"RAY_ADDRESS={address}")
    return "" if address == "auto" else address


def _address_here(ray: Any) -> str:
    """Return the address of a cluster that runs on this machine, if there is one."""
    try:
        found: str = ray._private.services.canonicalize_bootstrap_address("auto")
        _require_answer(found, found)
    except (ConnectionError, AssayError):  # Ray may have noted one that has died since
        return ""
    return found


def _job_config(ray: Any) -> Any:
    """Return a configuration without our folder, which workers would import modules from."""
    config = ray.job_config.JobConfig()
    config._runtime_env_has_working_dir = lambda: True
    return config


def _require_answer(address: str, given: str) -> None:
    """Refuse soon what is no cluster: Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdigit() or int(port) > _LAST_PORT:
        msg = f"{given} is not the address of a Ray cluster"
        raise InputError(msg, hint="give HOST:PORT, as `ray start --head` prints it")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S) as connection:
            connection.sendall(_HELLO)
            is_server = connection.recv(len(_HELLO))[3:4] == _SETTINGS
    except OSError as error:
        msg = f"no Ray cluster answers at {address}: {error.strerror or error}"
        raise AssayError(msg, hint="start one with: ray start --head --port 6379") from error
    if not is_server:
        msg = f"what answers at {address} is not a Ray cluster"
        raise AssayError(msg, hint="give HOST:PORT, as `ray start --head` prints it")


class WorkerDied(Exception):
    """A worker or its node died before the work was done."""


class Cluster:
    """A connected cluster. Knows nothing of trials."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._task = ray.remote(max_retries=0)(_call)  # Ray's own reruns would spend money twice
        self._waiting: set[Any] = set()
        self._head = _Head(ray.get_runtime_context().gcs_address)

    def call[R](
        self,
        function: Callable[..., R],
        *arguments: Any,
        check: Callable[[], None],
        cpus: float | None = None,
        memory_bytes: int | None = None,
    ) -> R:
        """Call a function of a module on some node and wait for it.

        check is called meanwhile; if it raises, the work is ended. Raises what the function raises,
        WorkerDied and ClusterGone.
        """
        task = self._task.options(
            num_cpus=1 if cpus is None else cpus,
            memory=memory_bytes,
            scheduling_strategy="SPREAD",
        )
        ref = task.remote(function, *arguments)
        self._waiting.add(ref)
        try:
            while not self._ray.wait([ref], timeout=self._wait_s)[0]:
                self._head.check()  # first: it says more than that all is to stop
                check()
        except BaseException:
            self._ray.cancel(ref, force=True)
            raise
        finally:
            self._waiting.discard(ref)
        result: R = self._get(ref)
        return result

    @property
    def _wait_s(self) -> float:
        """How long to wait before the next check: longer for many tasks, as each costs some CPU."""
        return min(_LONGEST_WAIT_S, max(_WAIT_S, len(self._waiting) * _WAIT_PER_TASK_S))

    def share(self, value: Any) -> Any:
        """Put a value where all nodes can read it; as an argument of call it is the value again."""
        return self._ray.put(value)

    def on_each_node[R](
        self, function: Callable[..., R], *arguments: Any
    ) -> dict[str, R | Exception]:
        """Call a function once on every node that runs tasks; return results or errors by node."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        refs = {}
        for node in self._working_nodes():
            strategy = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            task = self._task.options(num_cpus=0, scheduling_strategy=strategy)
            name = f"{node['NodeManagerHostname']} ({node['NodeID'][:8]})"
            refs[name] = task.remote(function, *arguments)
        results: dict[str, R | Exception] = {}
        for name, ref in refs.items():
            while not self._ray.wait([ref], timeout=_WAIT_S)[0]:
                self._head.check()
            try:
                results[name] = self._get(ref)
            except WorkerDied:
                continue  # the node has died; that takes Ray some seconds to notice
            except Exception as error:  # noqa: BLE001 - whatever the function raises there
                results[name] = error
        return results

    def n_slots(self, cpus: float | None, memory_bytes: int | None) -> int:
        """Return how many calls with these limits the nodes can do at once."""
        needed = {"CPU": 1 if cpus is None else cpus, "memory": memory_bytes or 0}
        return sum(
            min(int(node["Resources"].get(kind, 0) / n) for kind, n in needed.items() if n)
            for node in self._working_nodes()
        )

    def _working_nodes(self) -> list[dict[str, Any]]:
        nodes = self._ray.nodes()
        return [node for node in nodes if node["Alive"] and node["Resources"].get("CPU", 0) > 0]

    def _get(self, ref: Any) -> Any:
        try:
            return self._ray.get(ref)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from None  # without Ray's own traceback in the message
        except self._ray.exceptions.RayError as error:
            line = (str(error).strip() or "the worker died").splitlines()[0]
            msg = f"{type(error).__name__}: {line}"
            raise WorkerDied(msg) from error


class _Head:
    """The head of the cluster, looked at now and then; many threads share it."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._answered_s = self._looked_s = time.monotonic()

    def check(self) -> None:
        """Raise ClusterGone if the head has not answered for a while."""
        if time.monotonic() - self._looked_s > _LOOK_S and self._lock.acquire(blocking=False):
            try:
                self._look()
            finally:
                self._lock.release()
        if self._looked_s - self._answered_s > _MOST_SILENT_S:
            msg = f"the Ray cluster at {self._address} does not answer any more"
            hint = "what has finished is saved; start the cluster again and continue with --resume"
            raise ClusterGone(msg, hint=hint)

    def _look(self) -> None:
        host, _, port = self._address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _LOOK_S).close()
            self._answered_s = time.monotonic()
        except OSError:
            pass
        self._looked_s = time.monotonic()


def _call[R](function: Callable[..., R], *arguments: Any) -> R:
    return function(*arguments)
