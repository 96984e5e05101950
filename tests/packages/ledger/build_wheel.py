"""Builds the wheel of this package with nothing but Python, so that pip installs it offline."""

import tomllib
from pathlib import Path
from zipfile import ZipFile


def build_wheel(folder, config_settings=None, metadata_directory=None):
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    name, version = project["name"].replace("-", "_"), project["version"]
    about = f"{name}-{version}.dist-info"
    entry_points = "".join(
        f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in entries.items())
        for group, entries in project["entry-points"].items()
    )
    files = {
        "ledger.py": Path("ledger.py").read_text(),
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/entry_points.txt": entry_points,
    }
    record = "".join(f"{path},,\n" for path in [*files, f"{about}/RECORD"])
    wheel = f"{name}-{version}-py3-none-any.whl"
    with ZipFile(Path(folder, wheel), "w") as archive:
        for path, text in [*files.items(), (f"{about}/RECORD", record)]:
            archive.writestr(path, text)
    return wheel
