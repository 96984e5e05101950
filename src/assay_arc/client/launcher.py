"""Writes the players' programs as single files that lead nowhere: no game is beside them."""

import io
import sys
import zipfile
from pathlib import Path

PACKAGE = "assay/benchmarks/arc_agi/client"
FILES = ("connection.py", "arc_play.py", "tools.py", "arc_mcp.py")
PROGRAMS = {
    "arc-play": (
        "import sys\nfrom {module}.arc_play import main\nraise SystemExit(main(sys.argv[1:]))"
    ),
    "arc-mcp": "from {module}.arc_mcp import main\nraise SystemExit(main())",
}
# A date within what zip files can hold, so that the same source gives the same bytes.
STAMP = (1980, 1, 1, 0, 0, 0)


def write_launchers(folder: Path) -> dict[str, Path]:
    """Put `arc-play` and `arc-mcp` into a folder for the player's PATH."""
    folder.mkdir(parents=True, exist_ok=True)
    written = {}
    for name, start in PROGRAMS.items():
        path = folder / name
        path.write_bytes(_program(start.format(module=PACKAGE.replace("/", "."))))
        path.chmod(0o755)
        written[name] = path
    return written


def _program(start: str) -> bytes:
    """Make a program that Python runs from one file: a shebang line and a zip behind it."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as file:
        parts = PACKAGE.split("/")
        for depth in range(1, len(parts) + 1):
            _add(file, "/".join(parts[:depth]) + "/__init__.py", "")
        for name in FILES:
            source = Path(__file__).with_name(name).read_text(encoding="utf-8")
            _add(file, f"{PACKAGE}/{name}", source)
        _add(file, "__main__.py", start)
    return f"#!{_interpreter()} -IS\n".encode() + archive.getvalue()


def _interpreter() -> str:
    """Name the plain interpreter, not that of our virtual environment, where the games are."""
    return str(Path(sys.executable).resolve())


def _add(file: zipfile.ZipFile, name: str, text: str) -> None:
    file.writestr(zipfile.ZipInfo(name, STAMP), text)
