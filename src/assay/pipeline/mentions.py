"""What the text of a script says about files, programs and variables, as far as a glance can tell.

Nothing is run: a name counts where it stands in the text, and what is put together from pieces
while the script runs is only noticed, so that it can be said.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from assay.records.variable_names import is_secret_name

_WRITES = (
    r"""\bopen\([^)\n]*,\s*(?:mode\s*=\s*)?["'][rwax]*[wax+]|write_text|write_bytes|writeFile|appendFile"""
    r"""|\.open\(\s*["'][rbt]*[wax+]|json\.dump\(|createWriteStream|FileHandler\(|\bbasicConfig\("""
    r"""|\btee\b|>>|\bmkdirs?\w*\(|\bmakedirs\(|\brmtree\("""
)
_FILE_READS = (
    r"""\bopen\(|\bread_text\(|\bread_bytes\(|\bread(?:File|_csv|_json|dir)|\bload\w*\(|\bcat\b|<\s*\S"""
    r"""|\br?glob\(|\blistdir\(|\biterdir\(|\bscandir\(|\bwalk\("""
)
_OPENED = (
    r"(?:\bopen|\blistdir|\bscandir|\bi?glob\.i?glob|\bwalk|\breadFile(?:Sync)?|\breaddir(?:Sync)?)\(\s*([^,)\n]*)"
    r"|\b([A-Za-z_]\w*)\.(?:read_text|read_bytes|open|r?glob|iterdir)\("
    r"|(\w*\((?:[^()\n]|\([^()\n]*\))*\))\.(?:read_text|read_bytes|open|r?glob|iterdir)\("
)
_PUT_TOGETHER = (
    r"""[fF]["']|["'`]\s*[+%]|[+%]\s*["'`]|\$\{|\.format\b|\.replace\(|\bwith_(?:suffix|stem)\("""
    r"""|\bhome\(|\w\[["']"""
)
_SOURCED = (
    r"""\b(?:do|require(?:_once)?|include(?:_once)?|load|source)\s*\(?\s*"[^"\n]*(?:\$|#\{)"""
)
"""As Perl, Ruby, PHP and R load a file by a name that is put together."""
_STARTED = (
    r"(?:\brun|\bPopen|\bcall|\bcheck_call|\bcheck_output|\bsystem|\bpopen|\bgetoutput|\bgetstatusoutput|\bexec\w*"
    r"|\bspawn\w*|\bcreate_subprocess_\w+)\(\s*(?:\[([^\]]*)\]|[rf]?([\"'`])([^\"'`\n]+)\2)"
)
_WORD = r"(sys\.executable)|[rf]?([\"'`])([^\"'`\n]*)\2"
_COMPUTED_VARIABLE = (
    r"\benviron(?:\.(?:items|values|keys|copy)\(\)|\)|\s*$)|/proc/(?:self|\$\$)/environ|\bBaseSettings\b"
    r"|\b(?:auto_)?envvar_prefix\b|\benv_prefix\b|\$\{!\w|(?:^|[;|&(]\s*)(?:env|printenv)\s*(?:\||$)|"
    r"(?:^|[;|&(])\s*eval\s[^\n]*\$|"
    r"(?:\benviron(?:\.get)?|\bgetenv|\bprocess\.env)\s*[\[(]\s*"
    r"(?:[^\"'\s)\]]|[\"']\w*[\"']\s*[+%])"
)
_MANY = 60
"""Programs that one text starts; the rest is left out."""


def writes(text: str) -> bool:
    """Whether code seems to write files at all."""
    return re.search(_WRITES, text) is not None


def is_only_read(name: str, text: str) -> bool:
    """Whether code seems to read a file, by its name or by a variable, and never to write it.

    Of code that writes files at all, every line that names this one has to say that it reads.
    """
    if not writes(text):
        return True
    lines = text.splitlines()
    held = [re.match(r"\s*(\w+)\s*=[^=]", line) for line in lines if name in line]
    holders = [one[1] for one in held if one and not re.search(_FILE_READS, one.string)]
    wanted = re.compile("|".join((re.escape(name), *(rf"\b{word}\b" for word in holders))))
    allowed = "|".join((_FILE_READS, *(rf"^\s*{word}\s*=[^=]" for word in holders)))
    return all(
        re.search(allowed, line) and not re.search(_WRITES, line)
        for line in filter(wanted.search, lines)
    )


def is_quoted(name: str, text: str) -> bool:
    """Whether a name stands in quotation marks, alone or as the beginning of a path."""
    return re.search(rf"""["'`](?:\./)?{re.escape(name)}/?[^"'`\n]*["'`]""", text) is not None


def opens_computed(text: str) -> bool:
    """Whether code opens files by names that do not stand in it."""
    opened = {found for pair in re.findall(_OPENED, text) for found in pair if found.strip()}
    if re.search(_SOURCED, text):
        return True
    return any(not _is_literal(each.strip(), text) for each in opened)


def _is_literal(value: str, text: str, depth: int = 0) -> bool:
    if re.search(r"""["'`]""", value):
        return re.search(_PUT_TOGETHER, value) is None
    name = re.match(r"[A-Za-z_]\w*", value)
    if name is None or depth > 1:
        return False
    given = re.findall(rf"(?m)^\s*(?:const |let |var )?{name[0]}\s*=\s*([^=\n].*)$", text)
    given += re.findall(rf"\bas\s+{name[0]}\b|\bimport\s+{name[0]}\b", text)
    return bool(given) and all(_is_literal(each, text, depth + 1) for each in given)


def reads_computed_variables(text: str) -> bool:
    """Whether code reads variables of the environment by names that do not stand in it."""
    return re.search(_COMPUTED_VARIABLE, text, re.MULTILINE) is not None


def variables_named(text: str, names: Iterable[str]) -> set[str]:
    """Return those of the variables whose names stand in the text of a script."""
    there = [name for name in names if name in text]
    return {name for name in there if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)}


def programs_started(text: str) -> Iterator[str | list[str]]:
    """Yield the commands that code starts, as far as they stand in it: lines, or lists of words."""
    for words, _, line in re.findall(_STARTED, text)[:_MANY]:
        if line:
            yield line
        elif found := ["python3" if own else word for own, _, word in re.findall(_WORD, words)]:
            yield found


def public_lines(file: Path) -> bytes:
    """Return the settings of an .env file without those that hold a secret."""
    try:
        lines = file.read_bytes().decode("utf-8", "replace").splitlines()
    except OSError:
        return b""
    kept = [line for line in lines if not is_secret_name(_name_of(line))]
    return "\n".join(kept).encode()


def _name_of(line: str) -> str:
    return line.partition("=")[0].strip().removeprefix("export ").strip()
