"""What bubblewrap is told to show: programs where they are installed, and no more than that."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.errors import SpawnError
from assay.run.sandbox import View, copy_etc, sandboxed

pytestmark = pytest.mark.usefixtures("bubblewrap")
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run a command in a sandbox, in the folder w, with the environment as it is."""
    for name in ("w", "home/tmp", "etc"):
        (tmp_path / name).mkdir(parents=True)
    copy_etc(str(tmp_path / "etc"))

    def start(
        *argv: str, path: str = os.environ["PATH"], **view: list[str]
    ) -> subprocess.CompletedProcess[str]:
        places = {name: str(tmp_path / place) for name, place in
                  {"workspace": "w", "home": "home", "etc": "etc"}.items()}  # fmt: skip
        env = {"PATH": path, "HOME": places["home"]}
        words = sandboxed(argv, env, View(**places, **view), network=True)
        return subprocess.run(words, env=env, capture_output=True, text=True, check=False)

    return start


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_a_script_with_its_interpreter_and_nothing_beside_it(run: Run, tmp_path: Path) -> None:
    inner = write(tmp_path / "tools/interpreter", '#!/bin/sh\necho "by $1"; ls "${1%/*}"\n')
    script = write(tmp_path / "project/bin/agent", f"#!{inner}\n")
    write(tmp_path / "project/bin/secret", "")
    write(tmp_path / "project/lib/secret", "")
    done = run(str(script))
    assert done.stdout.splitlines() == [f"by {script}", "agent"], done


def test_a_link_on_the_path_to_a_program_in_node_modules(run: Run, tmp_path: Path) -> None:
    modules = tmp_path / "prefix/lib/node_modules"
    write(
        modules / "agent/cli.sh",
        '#!/usr/bin/env sh\ncat "$(dirname "$(readlink -f "$0")")/../dep/file"\n',
    )
    write(modules / "dep/file", "a module it needs")
    write(tmp_path / "prefix/secret", "")
    link = tmp_path / "prefix/bin/agent"
    link.parent.mkdir()
    link.symlink_to("../lib/node_modules/agent/cli.sh")
    done = run("agent", path=f"{link.parent}:{os.environ['PATH']}")
    assert done.stdout == "a module it needs", done
    assert "secret" not in run("ls", str(tmp_path / "prefix")).stdout


def test_an_environment_of_python_without_what_is_hidden_in_it(run: Run, tmp_path: Path) -> None:
    project = tmp_path / "project"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", project / "env"], check=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = project / "env/lib" / version / "site-packages"
    write(site / "ours/__init__.py", "")
    write(site / "theirs/__init__.py", "")
    write(project / "secret", "")
    code = f"import theirs, os; print(os.listdir({str(project)!r})); import ours.x"
    program = str(project / "env/bin/python")
    done = run(program, "-c", code, hidden=[str(site / "ours")])
    assert done.stdout == "['env']\n", done
    assert "No module named 'ours.x'" in done.stderr
    done = run(program, "-c", "import os; print(os.listdir(os.path.dirname(os.__file__)) != [])")
    assert done.stdout == "True\n", done


def test_a_link_to_a_program_that_is_also_declared_visible(run: Run, tmp_path: Path) -> None:
    script = write(tmp_path / "share/agent/start", "#!/bin/sh\necho started\n")
    first, second = tmp_path / "bin/first", tmp_path / "bin/second"
    first.parent.mkdir()
    second.symlink_to(script)
    first.symlink_to("second")
    done = run(str(first), visible=[str(first), str(second)])
    assert (done.stdout, done.stderr) == ("started\n", "")


def test_an_interpreter_behind_a_shim(run: Run, tmp_path: Path) -> None:
    root = tmp_path / "manager"
    write(root / "versions/3/bin/interpreter", "#!/bin/sh\necho real\n")
    write(root / "libexec/start", f'#!/bin/sh\nexec {root}/versions/3/bin/"$1"\n')
    shim = f"#!/usr/bin/env sh\nexec {root}/libexec/start interpreter\n"
    write(root / "shims/interpreter", shim)
    script = write(tmp_path / "project/agent", "#!/usr/bin/env interpreter\n")
    done = run(str(script), path=f"{root}/shims:{os.environ['PATH']}")
    assert (done.stdout, done.stderr) == ("real\n", "")


def test_what_is_declared_visible_is_read_only(run: Run, tmp_path: Path) -> None:
    write(tmp_path / "data/file", "declared")
    text = f"cat {tmp_path}/data/file; echo x > {tmp_path}/data/file"
    done = run("/bin/sh", "-c", text, visible=[str(tmp_path / "data"), "/no/such/file"])
    assert done.stdout == "declared"
    assert "Read-only" in done.stderr


def test_a_folder_in_the_workspace_can_be_hidden(run: Run, tmp_path: Path) -> None:
    write(tmp_path / "w/results.raw/1.out", "")
    write(tmp_path / "w/file", "")
    done = run("/bin/sh", "-c", "ls -A . results.raw", hidden=[str(tmp_path / "w/results.raw")])
    assert done.stdout.split() == [".:", "file", "results.raw", "results.raw:"]


def test_what_is_hidden_in_the_system_is_covered_but_a_program_in_it_runs(
    run: Run, tmp_path: Path
) -> None:
    place = Path("/opt") / f"assay-test-{tmp_path.name}"
    try:
        program = write(place / "bin/agent", f"#!/bin/sh\nls -R {place}\n")
    except OSError:
        pytest.skip("/opt is not ours to write")
    try:
        write(place / "secret", "")
        done = run(str(program), hidden=[str(place)])
        assert "agent" in done.stdout, done
        assert "secret" not in done.stdout
    finally:
        subprocess.run(["rm", "-r", place], check=True)


def test_no_program(run: Run) -> None:
    with pytest.raises(SpawnError, match="no-such-program"):
        run("no-such-program")
