"""What a command line loads, found without starting it."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from assay import plugins
from assay.pipeline.arms import reuse_of
from assay.pipeline.grading import grader_versions
from assay.pipeline.identity import identity_of_setup
from assay.pipeline.loaded import Loader
from assay.pipeline.servers import add_servers
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
    "NODE_OPTIONS=": (["node", "-e", "1"], {"NODE_OPTIONS": "--require=./core.cjs"}),
    "Ruby": (["ruby", "agent.rb"], {}),
    "data of any suffix": (["python3", "-c", "open('core.dat')"], {}),
    ".env": (["python3", "-c", "load('.core')"], {}),
    "data without a suffix": (["/bin/sh", "-c", "cat data/core"], {}),
    "folder of a glob": (["python3", "-c", "list(Path('data').glob('*'))"], {}),
    "parts of a path": (["python3", "-c", "open(os.path.join(here, 'data', 'core'))"], {}),
    "program in a list": (["python3", "-c", "subprocess.run(['./core.sh'])"], {}),
    "module in a list": (["python3", "-c", "run([sys.executable, '-m', 'core'])"], {}),
    "pattern of the shell": (["/bin/sh", "-c", "for f in ./lib/*.sh; do . $f; done"], {}),
    "a pattern in a folder that is known": (
        ["/bin/sh", "-c", 'for f in "$PWD"/lib/*.sh; do . "$f"; done'],
        {},
    ),
    "a line that is put together": (["python3", "-c", "os.system(f'sh {here}/core.sh')"], {}),
    "make": (["make", "core"], {}),
    "data as an operand": (["./native", "--weights", "core.dat"], {}),
    "settings": (["./native", "--config=settings.yaml"], {}),
    "env -C": (["env", "-C", "sub", "python3", "one.py"], {}),
    "env --chdir": (["env", "--chdir=sub", "python3", "one.py"], {}),
    "env -S": (["env", "-S", "python3 -u agent.py", ""], {}),
    "a program that starts others": (["setpriv", "--no-new-privs", "python3", "-m", "agent"], {}),
    "-c of another program": (["script", "-qec", "python3 -m agent", "/dev/null"], {}),
    "pushd": (["/bin/bash", "-c", "pushd sub > /dev/null; python3 one.py"], {}),
    "a variable of the shell": (["/bin/sh", "-c", ". ./lib.env.sh; python3 -c 'import far'"], {}),
    "code with a semicolon": (["/bin/sh", "-c", "python3 -c 'import os; import core'"], {}),
    "code in double quotes": (["/bin/sh", "-c", 'python3 -c "import os; import core"'], {}),
    "a here-document": (["/bin/sh", "-c", "python3 - <<X | cat\nimport core\nX"], {}),
    "after a here-document": (
        ["/bin/sh", "-c", "cat <<'X'\ndon't\nX\npython3 -m core\necho 'x'"],
        {},
    ),
    "-I. of Perl": (["perl", "-I.", "-MCore", "-e", "1"], {}),
    "-I of Perl": (["perl", "-Ilib", "agent.pl"], {}),
    "use lib": (["perl", "agent.pl"], {}),
    "RUBYLIB": (["ruby", "plain.rb"], {"RUBYLIB": "lib"}),
    "NODE_PATH": (["node", "-e", 'require("core")'], {"NODE_PATH": "."}),
    "imports of package.json": (["node", "-e", 'require("#core")'], {}),
    "LD_PRELOAD": (["./native"], {"LD_PRELOAD": "./core.so"}),
    "a compiled module": (["python3", "-c", "import deep.core"], {}),
    "an archive": (["python3", "-c", "import x"], {"PYTHONPATH": "core.zip"}),
    "a package in dist": (["python3", "-c", "import lib2"], {}),
    "a linked folder of a package": (["python3", "-c", "import lib3"], {}),
    "named by settings": (["./native", "--config", "names.yaml"], {}),
    "@file": (["./native", "-d", "@core.dat"], {}),
    "key=file": (["./native", "-D", "prompt=core.dat"], {}),
    "several files": (["./native", "--files=a.md,core.dat"], {}),
    "an attached option": (["./native", "-fcore.dat"], {}),
    "file://": (["./native", "file://core.dat"], {}),
    "a pattern of another program": (["./native", "-cp", "data/*"], {}),
    "at home": (["python3", "-c", "open('~/data/core')"], {"HOME": "."}),
    "data named as a log": (["python3", "-c", "open('core.log')"], {}),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_an_edit_of_what_is_loaded_is_seen(name: str, write: Write, tmp_path: Path) -> None:
    """The file `core` with any suffix decides, however it is reached."""
    for program in ("python3", "node", "npm", "uv", "ruby", "perl", "setpriv", "script", "native"):
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
    for name_ in (".core", "data/core", "core.sh", "lib/core.sh"):
        write(name_)
    write("Makefile", "core:\n\t./core.sh\n")
    for suffix in ("py", "js", "cjs", "rb", "dat"):
        write(f"core.{suffix}")
    write("settings.yaml", "core: 1\n")
    for name_ in ("core.so", "core.zip", "core.log", "deep/core.so", "lib2/__init__.py"):
        write(name_)
    write("sub/one.py", "import core\n")
    write("sub/core.py")
    write("lib.env.sh", "export PYTHONPATH=$PWD/lib\n")
    write("lib2/dist/__init__.py")
    write("lib2/dist/core.py")
    write("lib3/__init__.py")
    (tmp_path / "lib3/data").symlink_to(tmp_path / "data")
    write("agent.pl", 'use FindBin; use lib "$FindBin::Bin/lib"; use Far;\n')
    write("lib/core.pm")
    write("core.pm")
    write("plain.rb", "require 'far'\n")
    write("names.yaml", "prompt: core.md\n")
    write("core.md")
    write("package.json", '{"scripts": {"agent": "node agent.mjs"}, "imports": {"#*": "./*.cjs"}}')
    words, env = COMMANDS[name]
    env = {
        key: value.replace(".", str(tmp_path)) if key == "HOME" else value
        for key, value in env.items()
    }
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


@pytest.mark.parametrize(
    "line",
    [
        'exec sh "$(dirname "$0")/core.sh"',
        '. "$(dirname "$0")/core.sh"',
        'exec "$(dirname -- "${BASH_SOURCE[0]}")/core.sh"',
        'here=$(dirname "$0"); sh "$here/core.sh"',
        "exec sh `dirname $0`/core.sh",
        'sh "${0%/*}/core.sh"',
        "sh $(dirname $(readlink -f $0))/core.sh",
        'top="$(cd "$(dirname "$0")/../tools" && pwd)"; sh "$top/core.sh"',
    ],
)
def test_a_script_is_found_beside_the_one_that_names_its_own_folder(
    line: str, write: Write, tmp_path: Path
) -> None:
    write("tools/core.sh", "echo plum\n", 0o755)
    script = write("tools/agent.sh", f"#!/bin/bash\n{line}\n")
    loader = Loader(tmp_path, {"PATH": os.environ["PATH"]})
    loader.command(["bash", str(script)])
    assert "tools/core.sh" in loader.found().files


def test_an_installed_package_that_somebody_edited_is_another(write: Write, tmp_path: Path) -> None:
    site = f"venv/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    write("venv/pyvenv.cfg")
    write("venv/bin/python", "\x7fELF", 0o755)
    digest = "sha256=Bu289DNhZaJx5lJAJaZDnDyqMkb9B5bxFncieXB6UyU"
    write(f"{site}/registry-1.2.dist-info/RECORD", f"registry/__init__.py,{digest},6\n")
    write("node_modules/tool/package.json", '{"name": "tool", "version": "1.0.0"}')
    write("agent.mjs", 'import tool from "tool"\n')
    versions = []
    for text in ("A = 1\n", "A = 1\n", "A = 10\n"):
        write(f"{site}/registry/__init__.py", text)
        write("node_modules/tool/index.js", text)
        loader = Loader(tmp_path, {"PATH": f"{tmp_path}/venv/bin:{os.environ['PATH']}"})
        loader.command(["python", "-c", "import registry"])
        loader.program(tmp_path / "node", ["agent.mjs"], tmp_path)
        versions.append(loader.found().packages)
    assert versions[0] == versions[1]
    assert versions[0]["registry"] != versions[2]["registry"]
    assert versions[0]["tool"] != versions[2]["tool"]


UNKNOWN: dict[str, tuple[list[str], str]] = {
    "an image": (["docker", "run", "agent"], "what docker starts or asks elsewhere"),
    "a server": (["/bin/sh", "-c", "curl -d x http://host"], "what curl starts or asks elsewhere"),
    "a server of ours": (
        ["python3", "-c", "urlopen('http://127.0.0.1:9/')"],
        "what the server at 127.0.0.1:9 answers",
    ),
    "a database": (
        ["python3", "-c", "sqlite3.connect('facts.db')"],
        "facts.db, which the code of -c may read or write",
    ),
    "a database of a program": (
        ["./native", "--db", "facts.db"],
        "facts.db, which a command may read or write",
    ),
    "a large script": (
        ["python3", "large.py"],
        "what large.py loads, which is larger than 1 MiB",
    ),
    "all variables": (
        ["python3", "-c", "for k, v in os.environ.items(): pass"],
        "variables that the code of -c reads by computed names",
    ),
    "variables of a class": (
        ["python3", "-c", "class S(BaseSettings): word: str"],
        "variables that the code of -c reads by computed names",
    ),
    "variables in a pipe": (
        ["/bin/sh", "-c", "env | grep ^MY"],
        "variables that a command reads by computed names",
    ),
    "a variable that eval makes": (
        ["/bin/sh", "-c", "eval echo \\$W$((1))"],
        "variables that a command reads by computed names",
    ),
    "names in a list": (
        ["/bin/sh", "-c", 'while read f; do cat "rules/$f"; done < list'],
        "files that a command opens by computed names",
    ),
    "a name of Perl": (
        ["perl", "computed.pl"],
        "files that computed.pl opens by computed names",
    ),
    "a name of settings": (
        ["python3", "-c", "open(settings['prompt'])"],
        "files that the code of -c opens by computed names",
    ),
    "another suffix": (
        ["python3", "-c", "Path(__file__).with_suffix('.md').read_text()"],
        "files that the code of -c opens by computed names",
    ),
    "packages of a script": (
        ["uv", "run", "needs.py"],
        "the packages that uv installs for needs.py",
    ),
    "a module of Node": (["node", "-e", "require('far')"], "the module far, which was not found"),
    "libraries": (
        ["env", "LD_LIBRARY_PATH=lib", "./native"],
        "libraries in the folders of LD_LIBRARY_PATH",
    ),
    "output that settings name": (
        ["./native", "settings.yaml"],
        "out.csv, which settings.yaml names",
    ),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_decides_elsewhere_is_said(name: str, write: Write, tmp_path: Path) -> None:
    for program in ("docker", "curl", "uv", "node", "native", "perl"):
        write(f"bin/{program}", "\x7fELF", 0o755)
    write("native", "\x7fELF", 0o755)
    write("computed.pl", 'do "$0.d/core.pl";\n')
    write("facts.db")
    write("large.py", "#" * 2**20 + "\n#")
    write("needs.py", "# /// script\n# dependencies = ['x']\n# ///\n")
    write("settings.yaml", "output: out.csv\n")
    write("out.csv")
    words, said = UNKNOWN[name]
    loader = Loader(tmp_path, {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"})
    loader.command(words)
    assert said in loader.found().unknown


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


@pytest.mark.parametrize(
    "code",
    [
        "Path('log.txt').open('a').write('x')",
        "open('log.txt', 'a')",
        "logging.basicConfig(filename='log.txt')",
        "os.system('date | tee log.txt')",
    ],
)
def test_what_an_agent_writes_is_not_what_it_is_made_of(
    code: str, write: Write, tmp_path: Path
) -> None:
    write("agent.py", code)
    write("log.txt")
    loader = Loader(tmp_path, {"PATH": os.environ["PATH"]})
    loader.command(["python3", "agent.py"])
    found = loader.found()
    assert set(found.files) == {"agent.py"}
    assert "log.txt, which agent.py may read or write" in found.unknown


def test_what_is_put_together_from_pieces_is_said(write: Write, tmp_path: Path) -> None:
    code = {
        "files that agent.py opens by computed names": "open(f'{n}.md')",
        "variables that agent.py reads by computed names": "os.environ['MY' + 'WORD']",
        "modules that agent.py imports by computed names": "runpy.run_path('core' + '.py')",
        "files in data, which stands in a command": "subprocess.run(['./native', 'data'])",
        "what make builds and runs": "os.system('make core')",
    }
    write("native", "\x7fELF", 0o755)
    write("data/x")
    for said, text in code.items():
        write("agent.py", text)
        loader = Loader(tmp_path, {"PATH": os.environ["PATH"]})
        loader.command(["python3", "agent.py"])
        assert said in loader.found().unknown
    for text in ("open('system.md')", "RULES = here / 'a.md'\nRULES.read_text()", "json.load(x)"):
        write("agent.py", text)
        loader = Loader(tmp_path, {"PATH": os.environ["PATH"]})
        loader.command(["python3", "agent.py"])
        assert loader.found().unknown == ()


def test_a_large_folder_that_code_names_is_not_read(write: Write, tmp_path: Path) -> None:
    write("agent.py", "for f in Path('data').iterdir(): print(f)")
    with write("data/weights").open("wb") as file:
        file.truncate(2**40)
    loader = Loader(tmp_path, {"PATH": os.environ["PATH"]})
    loader.command(["python3", "agent.py", "data/weights"])
    found = loader.found()
    assert found.files["data/weights"] == f"{2**40} bytes"
    assert "files in data, which has more than 33,554,432 bytes" in found.unknown
    assert f"the content of weights, which has {2**40:,} bytes" in found.unknown


def test_settings_of_an_env_file_count_and_its_secrets_do_not(write: Write, tmp_path: Path) -> None:
    write("agent.py", "from dotenv import load_dotenv\nload_dotenv()\n")
    seen = []
    for lines in ("MODEL=a\nAPI_KEY=1\n", "MODEL=a\nAPI_KEY=2\n", "MODEL=b\nAPI_KEY=2\n"):
        write(".env", lines)
        loader = Loader(tmp_path, {"PATH": os.environ["PATH"]})
        loader.command(["python3", "agent.py"])
        seen.append(loader.found().files[".env"])
    assert seen[0] == seen[1] != seen[2]


def test_variables_are_found_by_whatever_name_the_environment_has(
    write: Write, tmp_path: Path
) -> None:
    write("agent.py", "from os import environ as E\nprint(E['MYWORD'])\n")
    loader = Loader(tmp_path, {"PATH": os.environ["PATH"], "MYWORD": "x", "OTHER": "y"})
    loader.command(["python3", "agent.py"])
    assert loader.found().variables == {"MYWORD"}


@pytest.mark.parametrize(
    "code",
    [
        "print(open('system.md').read())\nopen('log.txt', 'a').write('x')",
        "RULES = Path(__file__).with_name('system.md')\nx = RULES.read_text()\nLOG.write_text(x)",
        "RULES = 'system.md'\nrules = open(RULES)\nlogging.basicConfig(filename='log.txt')",
    ],
)
def test_what_an_agent_only_reads_counts_although_it_writes_something_else(
    code: str, write: Write, tmp_path: Path
) -> None:
    write("agent.py", code)
    write("system.md")
    write("log.txt")
    loader = Loader(tmp_path, {"PATH": os.environ["PATH"]})
    loader.command(["python3", "agent.py"])
    assert set(loader.found().files) == {"agent.py", "system.md"}


def test_settings_of_a_server_may_name_variables_folders_and_data(
    write: Write, tmp_path: Path
) -> None:
    write("server.py")
    write("db.bin")
    write("data/x")
    server = {"command": "python3", "args": ["server.py", "--dir", "data"]}
    server["env"] = {"DB": "db.bin", "MODE": "${MODE}"}
    loader = Loader(tmp_path, {"PATH": os.environ["PATH"]})
    unknown = list(add_servers(loader, {"mcpServers": {"tools": server}}, tmp_path))
    found = loader.found()
    assert set(found.files) == {"server.py", "db.bin"}
    assert "MODE" in found.variables
    assert [*unknown, *found.unknown] == ["files in data, which stands in a command"]


def test_a_setup_is_made_of_the_variables_that_it_reads(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = []
    for seed, other in (("1", "1"), ("1", "2"), ("2", "2")):
        monkeypatch.setenv("MY_SEED", seed)
        monkeypatch.setenv("OPENAI_MODEL", other)
        identity = identity_of_setup(Identity(adapter="x"), "echo $MY_SEED > seed", tmp_path)
        found.append(identity.setup)
    assert found[0] == found[1] != found[2]


def test_a_setup_is_made_of_the_folders_that_it_copies(write: Write, tmp_path: Path) -> None:
    def setup(line: str) -> Identity:
        return identity_of_setup(Identity(adapter="x"), line, tmp_path)

    write("fixtures/a/words", "one")
    write("work/out")
    before = setup("cp -r fixtures/. work")
    write("work/out", "another")
    assert setup("cp -r fixtures/. work") == before
    write("fixtures/a/words", "two")
    assert setup("cp -r fixtures/. work").setup != before.setup
    assert setup("curl http://host -o x").not_covered == (
        "what curl starts or asks elsewhere (set-up of prompts)",
    )


def test_a_grader_that_is_a_script_is_made_of_what_it_loads(write: Write, tmp_path: Path) -> None:
    script = write("g.sh", "#!/bin/sh\n. ./lib.sh\nenv -C sub python3 -m deep\n", 0o755)
    seen = set()
    for name in ("lib.sh", "lib.sh", "sub/deep/__main__.py", "sub/deep/__main__.py"):
        write(name, f"{name} {len(seen)}")
        for ref in (f"{script}", f"command:{script}"):
            (version,) = grader_versions([plugins.grader(plugins.grader_ref(ref))]).values()
            seen.add((ref[:8], version))
    assert len(seen) == 8


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


def test_devices_and_processes_are_no_files_of_an_agent(tmp_path: Path, write: Write) -> None:
    """A link of another process cannot even be read."""
    write("agent.py", 'open(f"/proc/{1}/cwd"); open("/proc/1/cwd"); open("/sys/kernel"); "/proc"\n')
    found = loaded(tmp_path, "python3", "agent.py")
    assert "agent.py" in found
    assert not [name for name in found if name.startswith(("/proc", "/sys", "/dev/"))]


def test_what_a_command_writes_itself_is_not_what_it_is_made_of(
    tmp_path: Path, write: Write
) -> None:
    write("log", "one\n")
    for line in (
        "echo x >> log; wc -l < log",
        f"echo x > {tmp_path}/log; cat log",
        "tee -a log; cat log",
    ):
        loader = Loader(tmp_path, {"PATH": os.environ["PATH"]})
        loader.command(["/bin/sh", "-c", line])
        assert "log" not in loader.found().files
        assert "log, which a command reads and writes" in loader.found().unknown
    assert "log" in loaded(tmp_path, "/bin/sh", "-c", "cat log")
