"""Images that are built for tasks: each once for its content, and found again to be removed."""

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from assay.errors import AssayError, PluginError
from assay.plugin import Image
from assay.records.once import made_once
from assay.records.private import cache_root, private_folder, write_private
from assay.run.container import find_engine
from assay.run.program import run_program

_NAME = "assay-task"
_SHORT = 20
_TAIL_CHARS = 1500
_locks_lock = threading.Lock()
_locks: dict[str, threading.Lock] = {}
_failed: dict[str, str] = {}
"""Why images could not be made, by digest: the next trial of the task need not try again."""


class BuiltImage(msgspec.Struct, frozen=True):
    """A note of an image that was built here."""

    engine: str
    name: str
    n_bytes: int
    made_s: float

    def remove(self) -> bool:
        """Remove the image, unless a container uses it; return whether it is gone."""
        with contextlib.suppress(AssayError):
            run_program([self.engine, "rmi", self.name], timeout_s=120.0)
            words = [self.engine, "image", "inspect", "--format", "{{.Id}}", self.name]
            if run_program(words, timeout_s=60.0).exit_code == 0:
                return False
        self.note.unlink(missing_ok=True)
        return True

    @property
    def note(self) -> Path:
        """The file that says that the image was built."""
        return cache_root() / "images" / f"{self.name.rpartition(':')[2]}.json"


class _Config(msgspec.Struct, rename="pascal"):
    working_dir: str = ""
    user: str = ""


class _Inspected(msgspec.Struct, rename="pascal"):
    config: _Config
    size: int = 0


def build_image(image: Image) -> Image:
    """Return the image that is there, or was built or fetched, with what it says of itself."""
    with _locks_lock:
        lock = _locks.setdefault(image.digest, threading.Lock())
    with lock:
        if image.digest in _failed:
            raise PluginError(_failed[image.digest])
        try:
            return _made(image)
        except PluginError as error:
            _failed[image.digest] = error.message
            raise


def built_images() -> Iterator[BuiltImage]:
    """Yield the images that were built here and not removed."""
    with contextlib.suppress(OSError):
        for path in sorted((cache_root() / "images").glob("*.json")):
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                yield msgspec.json.decode(path.read_bytes(), type=BuiltImage)


def _made(image: Image) -> Image:
    engine = _find_engine()
    own = f"localhost/{_NAME}:{image.digest[:_SHORT]}"
    name = next((name for name in (image.name, own) if name and _inspect(engine, name)), "")
    if not name and image.folder:
        name = own
        _build(engine, image, name)
    elif not name:
        name = image.name
        done = run_program([engine, "pull", "-q", name], timeout_s=image.timeout_s)
        if done.exit_code != 0:
            msg = f"the image {name} is not here and cannot be fetched: {_last(done.stderr)}"
            raise PluginError(msg)
    found = _inspect(engine, name)
    if found is None:
        msg = f"{engine} does not know the image {name}, which it has just made"
        raise PluginError(msg)
    if name == own:
        built = BuiltImage(engine, name, found.size, time.time())
        private_folder("images")
        write_private(built.note, msgspec.json.encode(built))
    config = found.config
    return Image(name=name, digest=image.digest, workdir=config.working_dir, user=config.user)


def _build(engine: str, image: Image, name: str) -> None:
    file = str(Path(image.folder, image.dockerfile))
    words = [engine, "build", "--tag", name, "--file", file]
    for key, value in image.arguments.items():
        words += ["--build-arg", f"{key}={value}"]
    done = run_program([*words, image.folder], timeout_s=image.timeout_s)
    if done.timed_out:
        msg = f"the image was not built in {image.timeout_s:g} s"
        raise PluginError(msg)
    if done.exit_code != 0:
        said = _last(done.stderr) or _last(done.stdout)
        msg = f"{engine} cannot build the image (exit code {done.exit_code}): {said}"
        raise PluginError(msg)


@made_once
def _find_engine() -> str:
    return find_engine()


def _inspect(engine: str, name: str) -> _Inspected | None:
    done = run_program([engine, "image", "inspect", name], timeout_s=60.0)
    if done.exit_code != 0:
        return None
    return msgspec.json.decode(done.stdout, type=list[_Inspected])[0]


def _last(said: bytes) -> str:
    text = said.decode("utf-8", "replace").strip()
    return text if len(text) <= _TAIL_CHARS else f"…{text[-_TAIL_CHARS:]}"
