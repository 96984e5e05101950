"""Variables that choose models, endpoints and behaviour, as part of the identity of trials.

Their values stand there as hashes that cannot be turned back. They are the same on every machine,
so that a baseline can travel. What holds a secret, by its name or its value, is never hashed.
"""

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import msgspec

from assay.records.files import hash_file, short_hash
from assay.records.variable_names import decides_nothing, is_secret_name
from assay.run.workspace import our_secrets

_ROUNDS = 4000
"""Of the hash: a table of all likely values would take long, one value takes a millisecond."""
_SHORT = 12
_LARGEST_FILE = 1024 * 1024
_CHOOSES = (
    r"(?:\w*_)?(?:MODELS?|MODEL_NAME|MODEL_ID|BASE_?URL|API_BASE(?:_URL)?|API_URL|ENDPOINT(?:_URL)?|API_HOST"
    r"|REASONING_EFFORT|EFFORT(?:_LEVEL)?|API_VERSION|API_TYPE|TEMPERATURE|TOP_P|DEPLOYMENT(?:_NAME)?"
    r"|MAX_(?:THINKING_|OUTPUT_|COMPLETION_)?TOKENS|SYSTEM_PROMPT)|\w+_(?:HOST|REGION|LOCATION|PROVIDER)"
    r"|ANTHROPIC_\w+|CLAUDE_CODE_(?:USE|MAX|DISABLE|ENABLE|EFFORT|SUBAGENT|EXTRA|SKIP)\w*|CLAUDE_CONFIG_DIR"
    r"|CODEX_HOME|CODEX_CONFIG\w*|OPENCODE_(?:CONFIG|DISABLE|ENABLE|PERMISSION|MODEL)\w*|GEMINI_\w+"
    r"|GOOGLE_GENAI_\w+|GOOGLE_CLOUD_PROJECT|VERTEX_\w+|NODE_OPTIONS|LD_PRELOAD|BASH_ENV|RUBYOPT|PERL5OPT"
    r"|PYTHONOPTIMIZE|DISABLE_PROMPT_CACHING|DISABLE_INTERLEAVED_THINKING"
)
_CONFIGURES = r"\w*(?:_CONFIG(?:_DIR|_PATH|_FILE)?|_HOME|BASH_ENV)"
_CONFIG_FILES = (
    "settings.json", "settings.local.json", "config.toml", "config.json", "config.yaml",
    "opencode.json", "opencode.jsonc", "CLAUDE.md", "AGENTS.md", "GEMINI.md", ".claude.json",
)  # fmt: skip


def chosen_variables(
    env: Mapping[str, str], *, read: Iterable[str] = (), passed: Iterable[str] = ()
) -> tuple[dict[str, str], list[str]]:
    """Hash the values of those that choose something; also say what could not be read.

    read are names that the agent's own scripts read, passed those that were let through by name.
    """
    named = {*read, *passed}
    found: dict[str, str] = {}
    unread: list[str] = []
    for name, value in sorted(env.items()):
        chooses = re.fullmatch(_CHOOSES, name) is not None
        if not value or not (chooses or name in named):
            continue
        if is_secret_name(name) or (decides_nothing(name) and name not in passed):
            continue
        plain = _plain(name, value)
        if not Path(value).is_absolute() and os.path.isfile(value):  # noqa: PTH113 - any text
            unread.append(f"the file that {name} names")
        if plain is None:
            unread.append(f"the value of {name}, which holds a secret")
        elif plain or chooses:
            found[name] = _keyed_hash(name, plain)
        else:
            unread.append(f"the files that {name} names")
    return found, unread


def _keyed_hash(name: str, value: str) -> str:
    """Hash a value with its name as the key, slowly."""
    data = value.encode("utf-8", "surrogateescape")
    key = b"assay identity " + name.encode("utf-8", "surrogateescape")
    return hashlib.pbkdf2_hmac("sha256", data, key, _ROUNDS).hex()[:_SHORT]


def _plain(name: str, value: str) -> str | None:
    """Return what of a value counts: no password, and of a file its content.

    Empty stands for a path of which nothing is known, None for a secret.
    """
    if "://" in value:
        parts = urlsplit(value)
        host = parts.netloc.rpartition("@")[2]
        return urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
    if value.lstrip().startswith("{"):
        return _without_secrets(value)
    if our_secrets().occur_in(value.encode("utf-8", "surrogateescape")):
        return None
    path = Path(value).expanduser()
    if not path.is_absolute() or not os.path.lexists(path):
        return value
    if not re.fullmatch(_CONFIGURES, name):
        return ""
    if path.is_dir():
        there = [path / each for each in _CONFIG_FILES if (path / each).is_file()]
        return short_hash(msgspec.json.encode([(file.name, hash_file(file)) for file in there]))
    return hash_file(path) if path.is_file() and path.stat().st_size < _LARGEST_FILE else ""


def _without_secrets(value: str) -> str | None:
    try:
        content = msgspec.json.decode(value)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return msgspec.json.encode(_public(content), order="sorted").decode()


def _public(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _public(one) for key, one in value.items() if not is_secret_name(str(key))}
    return [_public(one) for one in value] if isinstance(value, list) else value
