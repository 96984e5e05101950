"""Run a module of ours where nothing can be written and nobody reached: it handles other people's
files and code."""

import os
import sys
from pathlib import Path

from assay.errors import AssayError
from assay.plugin import Finished
from assay.records.files import temporary_folder
from assay.run.landlock import landlocked
from assay.run.program import run_program
from assay.run.sandbox import View, copy_etc, kind_of_sandbox, sandboxed, works_landlock
from assay.run.workspace import isolated_env

NETWORK, FILES = "the network", "files of this user"
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/nix/store", "/etc")


def run_sealed(
    module: str, folder: Path, timeout_s: float, *words: str
) -> tuple[Finished, list[str]]:
    """Run a module in a process of its own, which may write to one folder.

    Return also what could not be shut out on this machine.
    """
    argv = [sys.executable, "-P", "-m", module, str(folder), *words]
    # Where our modules are. The interpreter finds its own, and another one must not get them.
    places = [path for path in sys.path if Path(path).is_dir() and not _is_of_interpreter(path)]
    shown = [*places, sys.prefix, sys.base_prefix]
    with temporary_folder("assay-sealed-") as home:
        env = isolated_env(home, (), {"PYTHONPATH": os.pathsep.join(places), "COLUMNS": "80"})
        env["PYTHONDONTWRITEBYTECODE"] = "1"
        command, open_to = argv, [NETWORK, FILES]
        try:
            kind_of_sandbox(network=False)
            etc = f"{home}/etc"
            copy_etc(etc)
            view = View(workspace=str(folder), home=home, visible=shown, etc=etc)
            command, open_to = sandboxed(argv, env, view, network=False), []
        except AssayError:
            if works_landlock():
                readable = [*_SYSTEM, *shown]
                command = landlocked(argv, readable, [str(folder), home], sockets=False)
                open_to = []
        return run_program(command, cwd=str(folder), env=env, timeout_s=timeout_s), open_to


def _is_of_interpreter(path: str) -> bool:
    return not path or Path(path).is_relative_to(Path(os.__file__).parent)
