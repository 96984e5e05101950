"""Build dist/assay.pyz: Assay's core in one file, for this Python and platform; needs no install.

It holds all of Assay but ARC-AGI-3, and what it imports but numpy, which alone is larger than the
limit. See docs/installing.md.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MOST_BYTES = 5_000_000
LEFT_OUT = ("numpy", "numpy.libs", "bin", "assay_arc", "__pycache__")
"""Top-level folders that are not packed."""


def main(target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        site = Path(scratch, "site")
        install(site)
        files = sorted(path for path in site.rglob("*") if path.is_file() and is_needed(path, site))
        write(target, site, files)
    size = target.stat().st_size
    print(f"{target}: {size / 1e6:.1f} MB, {len(files)} files")
    if size >= MOST_BYTES:
        sys.exit(f"{target} has {size} bytes; the limit is {MOST_BYTES}")


def install(site: Path) -> None:
    """Install Assay and what it needs into a folder."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-q"]
    subprocess.run([*pip, "--no-compile", "--target", site, ROOT], check=True)


def is_needed(path: Path, site: Path) -> bool:
    parts = path.relative_to(site).parts
    if parts[0].startswith("numpy-") or parts[0] in LEFT_OUT or "tests" in parts:
        return False
    return path.suffix not in (".pyc", ".pyi", ".c", ".h")


def write(target: Path, site: Path, files: list[Path]) -> None:
    """Write the file so that the same content gives the same bytes."""
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.relative_to(site)}\0".encode() + path.read_bytes())
    uname = os.uname()
    tag = f"{sys.implementation.cache_tag}-{uname.sysname}-{uname.machine}"
    about = json.dumps({"tag": tag, "digest": digest.hexdigest()[:16]})
    part = target.with_suffix(".part")
    with part.open("wb") as out:
        out.write(b"#!/usr/bin/env python3\n")
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            entry(archive, "__main__.py", (ROOT / "scripts/zipapp_main.py").read_bytes())
            entry(archive, "about.json", about.encode())
            for path in files:
                entry(archive, f"site/{path.relative_to(site)}", path.read_bytes())
    part.chmod(0o755)
    part.replace(target)


def entry(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = 0o644 << 16
    archive.writestr(info, content)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist/assay.pyz")
