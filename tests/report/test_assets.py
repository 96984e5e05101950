"""The page's scripts and styles: names stay unique in the bundle, and a formatter has run."""

import fcntl
import os
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from assay.report.page import script

ROOT = Path(__file__).resolve().parents[2]
ASSETS = ROOT / "src/assay/report/assets"
MODULES = {path.stem: path.read_text(encoding="utf-8") for path in sorted(ASSETS.glob("*.js"))}
PRETTIER = "prettier@3.9.10"
INSTALL_LIMIT_S = 300
# The formatter puts every top-level declaration at the start of a line and indents all others.
_KEYWORD = re.compile(r"(?:export )?(?:async )?(?:function|class|const|let|var)\b|import \w")
_DECLARATION = re.compile(
    r"(?:export )?(?:(?:async )?function\*? (\w+)\(|class (\w+) |(?:const|let|var) (\w+)(?: =|;)"
    r'|import (\w+) from "\./\w+\.json")'
)
_IMPORT = re.compile(r'^import \{([^}]*)\} from "\./(\w+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?:async )?(?:function|const|class) (\w+)", re.MULTILINE)


def top_level_names(text: str) -> list[str]:
    """Give the names that a module declares; refuse a declaration that this cannot read."""
    names = []
    for line in text.splitlines():
        if not _KEYWORD.match(line):
            continue
        found = _DECLARATION.match(line)
        if found is None or line.endswith(","):  # a pattern, or several names in one declaration
            raise ValueError(f"declare one name at a time: {line}")
        names.append(next(name for name in found.groups() if name))
    return names


def repeated_names(modules: Mapping[str, str]) -> dict[str, list[str]]:
    """Give the names that are declared more than once, with the modules that declare them."""
    places = defaultdict(list)
    for module, text in modules.items():
        for name in top_level_names(text):
            places[name].append(module)
    return {name: found for name, found in places.items() if len(found) > 1}


def imported_names(text: str) -> Iterable[tuple[str, str]]:
    for names, module in _IMPORT.findall(text):
        for name in names.split(","):
            if name.strip():
                yield module, name.strip()


def test_top_level_names_are_unique_in_the_bundle() -> None:
    assert len(top_level_names(MODULES["charts"])) > 20
    assert repeated_names(MODULES) == {}


@pytest.mark.parametrize(
    "line",
    [
        "function show() {}",
        "export function show(a, b) {",
        "export async function show() {",
        "async function show() {}",
        "function* show() {}",
        "const show = 1;",
        "export const show =",
        "let show;",
        "class show {",
        "export class show extends Other {",
        'import show from "./show.json" with { type: "json" };',
    ],
)
def test_a_repeated_name_is_found(line: str) -> None:
    inner = "\n  const show = 1;\n}\n// const show = 2;\n"  # neither is a top-level declaration
    modules = {"one": f"const other = 1;\n{line}{inner}", "two": "const show = (x) => x;\n"}
    assert repeated_names(modules) == {"show": ["one", "two"]}


@pytest.mark.parametrize("text", ["const { a, b } = c;", "let [a] = c;", "const a = 1,\n  b = 2;"])
def test_a_declaration_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="one name at a time"):
        top_level_names(text)


def test_imports_match_exports() -> None:
    """The bundle drops imports and exports, so that a browser would not notice a wrong one."""
    exported = {(stem, name) for stem, text in MODULES.items() for name in _EXPORT.findall(text)}
    imported = {pair for text in MODULES.values() for pair in imported_names(text)}
    assert imported == exported
    for module, text in MODULES.items():
        code = _IMPORT.sub("", text)
        unused = [name for _, name in imported_names(text) if not re.search(rf"\b{name}\b", code)]
        assert not unused, module


def test_every_module_is_in_the_bundle_and_says_what_it_shows() -> None:
    for module, text in MODULES.items():
        assert f"\n// {module}.js\n" in script()
        assert text.startswith("// "), module


@pytest.fixture(scope="session")
def prettier() -> Path:
    """Install the formatter unless the cache has it; parallel workers wait for the first."""
    root = Path(os.environ.get("ASSAY_TEST_CACHE") or Path.home() / ".cache" / "assay-tests")
    folder = root / PRETTIER
    root.mkdir(parents=True, exist_ok=True)
    with (root / f"{PRETTIER}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _install(folder)
    return folder / "node_modules/prettier/bin/prettier.cjs"


def _install(folder: Path) -> None:
    if shutil.which("npm") is None:
        _unavailable(f"npm is missing; install Node.js >= 20 to check the format with {PRETTIER}")
    partial = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    command = ["npm", "install", "--prefix", str(partial), "--ignore-scripts", "--no-audit"]
    done = subprocess.run(
        [*command, "--no-fund", PRETTIER],
        cwd=partial, capture_output=True, text=True, timeout=INSTALL_LIMIT_S, check=False,
    )  # fmt: skip
    if done.returncode:
        _unavailable(f"npm cannot install {PRETTIER}:\n{done.stderr[-2000:]}")
    partial.rename(folder)


def _unavailable(why: str) -> None:
    if os.environ.get("CI", "").lower() in ("true", "1"):
        pytest.fail(why, pytrace=False)
    pytest.skip(why)


def _check_format(prettier: Path, *files: Path) -> subprocess.CompletedProcess[str]:
    config = ["--config", str(ROOT / ".prettierrc.json")]
    command = ["node", str(prettier), "--check", *config, *map(str, files)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_scripts_and_styles_are_formatted(prettier: Path, tmp_path: Path) -> None:
    files = sorted([*ASSETS.glob("*.js"), *ASSETS.glob("*.css")])
    done = _check_format(prettier, *files)
    assert done.returncode == 0, f"run npx {PRETTIER} --write on these files:\n{done.stderr}"
    untidy = tmp_path / "untidy.js"
    untidy.write_text("const a=1\n")
    assert _check_format(prettier, untidy).returncode == 1
