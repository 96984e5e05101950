"""What a command line loads, found without starting it."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from assay.pipeline.arms import reuse_of
from assay.pipeline.loaded import Loader
from assay.pipeline.variables import chosen_variables
from assay.records.capture import COVERS, NOT_RECORDED, Identity, identity_differences

type Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_file(name: str, text: str = "", mode: int = 0o644) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return path

    return write_file


def loaded(folder: Path, *words: str, **env: str) -> set[str]:
    loader = Loader(folder, {"PATH": os.environ["PATH"], **env})
    loader.command(words)
    return set(loader.found().files)


COMMANDS: dict[str, tuple[list[str], dict[str, str]]] = {
    "a script": (["python3", "agent.py", ""], {}),
    "a module": (["python3", "-u", "-m", "agent"], {}),
    "code": (["python3", "-c", "import core"], {}),
    "env": (["env", "-u", "A", "MODE=x", "python3", "agent.py"], {}),
    "a shell line": (["/bin/sh", "-c", 'cd . && MODE=x timeout 5 python3 agent.py "$PROMPT"'], {}),
    "a wrapper": (["./wrapper"], {}),
    "a wrapper of its folder": (["./beside"], {}),
    "PYTHONPATH": (["python3", "-c", "import far"], {"PYTHONPATH": "lib"}),
    "sitecustomize": (["python3", "-c", "pass"], {"PYTHONPATH": "custom"}),
    "sys.path": (["python3", "paths.py"], {}),
    "a link": (["python3", "link.py"], {}),
    "uv run": (["uv", "run", "--with", "x", "agent.py"], {}),
    "Node": (["node", "agent.mjs"], {}),
    "npm run": (["npm", "run", "agent"], {}),
    "NODE_OPTIONS": (["node", "-e", "1"], {"NODE_OPTIONS": "--require ./core.cjs"}),
    "Ruby": (["ruby", "agent.rb"], {}),
    "settings": (["./native", "--config=settings.yaml"], {}),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_an_edit_of_what_is_loaded_is_seen(name: str, write: Write, tmp_path: Path) -> None:
    """The file `core` with any suffix decides, however it is reached."""
    for program in ("python3", "node", "npm", "uv", "ruby", "native"):
        write(f"bin/{program}", "\x7fELF", 0o755)
    write("native", "\x7fELF", 0o755)
    write("agent.py", "from core import (\n    answer,\n)\n")
    write("wrapper", '#!/bin/sh\nexec python3 agent.py "$@"\n', 0o755)
    write(
        "beside",
        '#!/bin/sh\nHERE="$(cd "$(dirname "$0")" && pwd)"\nexec python3 "$HERE/agent.py"\n',
        0o755,
    )
    write("lib/far.py", "import near.core\n")
    write("lib/near/core.py")
    write("custom/sitecustomize.py", "import core\n")
    write("custom/core.py")
    write("paths.py", 'import sys\nsys.path.insert(0, "more")\nimport core2\n')
    write("more/core2.py")
    write("real/link.py", "import core\n")
    write("real/core.py")
    (tmp_path / "link.py").symlink_to(tmp_path / "real/link.py")
    write("agent.mjs", 'import { x } from "./core.js"\n')
    write("package.json", '{"scripts": {"agent": "node agent.mjs"}}')
    write("agent.rb", "require_relative 'core'\n")
    for suffix in ("py", "js", "cjs", "rb"):
        write(f"core.{suffix}")
    write("settings.yaml", "core: 1\n")
    words, env = COMMANDS[name]
    path = f"{tmp_path}/bin:{os.environ['PATH']}"
    found = loaded(tmp_path, *words, **{**env, "PATH": path})
    assert any("core" in each or "settings" in each for each in found), found


def test_installed_packages_count_by_version_and_linked_ones_by_their_files(
    write: Write, tmp_path: Path
) -> None:
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    site = f"venv/lib/python{version}/site-packages"
    write("venv/pyvenv.cfg")
    python = write("venv/bin/python", "\x7fELF", 0o755)
    write(f"{site}/registry-1.2.dist-info/RECORD", "registry/__init__.py,sha256=x,1\n")
    write(f"{site}/registry/__init__.py")
    write(f"{site}/__editable__.mine-1.0.pth", f"{tmp_path}/source\n")
    write("source/mine/__init__.py", "from . import deep\n")
    write("source/mine/deep.py")
    tool = f"#!{python}\nfrom mine import main\nimport registry\nimport os\n"
    write("venv/bin/tool", tool, 0o755)
    loader = Loader(tmp_path, {"PATH": f"{tmp_path}/venv/bin"})
    loader.command(["tool"])
    found = loader.found()
    assert {"source/mine/__init__.py", "source/mine/deep.py"} <= set(found.files)
    assert found.packages["registry"].startswith("1.2 ")
    assert found.unknown == ()


def test_what_cannot_be_known_is_said(write: Write, tmp_path: Path) -> None:
    write("agent.py", "import importlib, sys\nimportlib.import_module(sys.argv[1])\n")
    for words, said in (
        (["python3", "agent.py"], "agent.py imports by computed names"),
        (["npx", "some-tool"], "the version of some-tool that npx fetches"),
        (["/bin/sh", "-c", '$TOOL "$PROMPT"'], "the program that $TOOL names"),
    ):
        loader = Loader(tmp_path, {"PATH": os.environ["PATH"]})
        loader.command(words)
        assert said in " ".join(loader.found().unknown)


def test_variables_that_choose_are_hashed_and_secrets_never() -> None:
    env = {
        "OPENAI_MODEL": "small",
        "ANTHROPIC_BASE_URL": "https://user:hunter2@host/v1?token=x",
        "OPENAI_API_KEY": "sk-secret-0123456789",
        "MY_MODE": "careful",
        "CI_JOB_URL": "https://ci/1",
        "HOME": "/home/me",
    }
    found, unread = chosen_variables(env, read=["MY_MODE", "HOME", "OPENAI_API_KEY"])
    assert set(found) == {"OPENAI_MODEL", "ANTHROPIC_BASE_URL", "MY_MODE"}
    assert not unread
    plain = {**env, "ANTHROPIC_BASE_URL": "https://host/v1/"}
    assert chosen_variables(plain)[0]["ANTHROPIC_BASE_URL"] == found["ANTHROPIC_BASE_URL"]
    other = chosen_variables({**env, "OPENAI_MODEL": "big"})[0]
    assert other["OPENAI_MODEL"] != found["OPENAI_MODEL"]
    assert "small" not in json.dumps(found)


def test_trials_are_reusable_after_a_check_or_not_at_all() -> None:
    now = Identity(
        covers=COVERS, adapter="simple", program="0" * 12, loads={"a.py": "1"}, graders={"g": "1"}
    )
    same = msgspec.structs.replace(now, graders={"g": "2"})
    assert reuse_of(same, now).kind == "yes"
    unknown = msgspec.structs.replace(now, not_covered=("what it fetches",))
    assert reuse_of(unknown, unknown) == ("check", ("what it fetches",))
    edited = msgspec.structs.replace(now, loads={"a.py": "2"})
    assert reuse_of(edited, now).kind == "no"
    assert "a.py" in reuse_of(edited, now).why[0]
    # An earlier version of Assay recorded less: comparable, but no trial of it is taken.
    old = Identity(adapter="simple", program="87a85951f5fb")
    assert reuse_of(old, now) == ("no", (NOT_RECORDED,))
    assert identity_differences(old, now) == ["the grader g (none before, 1 now)"]
