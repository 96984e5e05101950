"""What assay.pyz runs: unpacks itself into the user's cache folder, once, and starts Assay there.

Compiled modules cannot be imported from a zip file, and Assay starts programs that lie beside its
modules. This file also runs on older versions of Python, to say which one is needed.
"""

import json
import os
import shutil
import sys
import tempfile
import zipfile
from importlib.machinery import PathFinder
from pathlib import Path

HINT = "uv tool install PATH, or pip install PATH, with the path of its checkout or wheel"
NEED_NUMPY = ["ab", "baseline", "compare", "demo", "plan", "report", "trials", "trigger", "view"]
"""Commands that say so before they start an agent; others say so when they come to it."""
NO_NUMPY = "this command needs numpy, which is not part of assay.pyz"
NUMPY_HINT = f"install numpy for this Python, or install Assay: {HINT}"


def main() -> None:
    own = Path(__file__).absolute().parent
    with zipfile.ZipFile(own) as archive:
        about = json.loads(archive.read("about.json"))
        tag = f"{sys.implementation.cache_tag}-{os.uname().sysname}-{os.uname().machine}"
        if tag != about["tag"]:
            built = f"this assay.pyz was built for {about['tag']}, and this is {tag}"
            fail(built, f"build one here with make dist/assay.pyz, or install Assay: {HINT}")
        folder = unpacked(archive, about["digest"])
    sys.path[:] = [str(folder), *(place for place in sys.path if Path(place) != own)]
    sys.meta_path.append(Missing)
    asks_help = {"-h", "--help"}.intersection(sys.argv)
    needs_numpy = sys.argv[1:] and sys.argv[1] in NEED_NUMPY and not asks_help
    if needs_numpy and PathFinder.find_spec("numpy") is None:
        fail(NO_NUMPY, NUMPY_HINT)
    from assay.cli.main import main as start

    start()


def unpacked(archive: zipfile.ZipFile, digest: str) -> Path:
    """Return the folder with the content of the archive."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "assay"
    folder = cache / f"pyz-{digest}"
    if folder.is_dir():
        return folder
    part = None
    try:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = tempfile.mkdtemp(prefix="pyz-", dir=str(cache))
        names = [name for name in archive.namelist() if name.startswith("site/")]
        archive.extractall(part, names)
        Path(part, "site").rename(folder)
    except OSError as error:
        if not folder.is_dir():  # otherwise another process was faster
            said = f"assay.pyz cannot be unpacked into {cache}: {error.strerror}"
            fail(said, "set XDG_CACHE_HOME to a folder that you can write to")
    finally:
        if part is not None:
            shutil.rmtree(part, ignore_errors=True)
    return folder


def fail(text: str, hint: str) -> None:
    sys.exit(f"Error: {text}\n  {hint}")


class Missing:
    """Found last: names what is not in the file, where a command needs it."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "numpy":
            from assay.errors import MissingPackage

            raise MissingPackage(NO_NUMPY, hint=NUMPY_HINT)


main()
