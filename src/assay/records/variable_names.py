"""What the name of an environment variable says about its value: a secret, or of no consequence."""

import re
from functools import cache

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SECRET_WORD = re.compile(
    "AUTH|AUTHORIZATION|COOKIES?|CREDENTIALS?|CREDS|DSN|JWT|KEY|PASSWORDS|PAT|SECRETS"
    # also at the end of a word: PGPASSWORD
    "|.*(?:ACCESSKEY|APIKEY|AUTHKEY|BEARER|CREDENTIALS|PASS|PASSPHRASE|PASSWD|PASSWORD|PRIVATEKEY"
    "|PWD|SECRET|SECRETKEY|SSHKEY|TOKEN|WEBHOOK)"
)
_NO_SECRET = re.compile("PWD|OLDPWD|BYPASS|(?:EN)?COMPASS|(?:OVER|SUR|TRES|UNDER)PASS")
_ABOUT_SECRETS = frozenset({
    "ALG", "ALGORITHM", "BUDGET", "COUNT", "DIR", "DIRECTORY", "DISABLED", "ENABLED", "ENDPOINT",
    "EXPIRES", "EXPIRY", "FILE", "FOLDER", "FORMAT", "HOST", "HOSTNAME", "LENGTH", "LIMIT",
    "METHOD", "MODE", "NAME", "PARALLELISM", "PATH", "PORT", "PROVIDER", "REGION", "SIZE", "SOCK",
    "SOCKET", "TIMEOUT", "TTL", "TYPE", "URI", "URL", "USER", "USERNAME", "VERSION",
})  # fmt: skip
"""The last word of a name that tells about a secret and does not hold it: SSH_AUTH_SOCK."""
_NO_CHOICE = (
    r"(?:CI|GITHUB|GITLAB|RUNNER|KUBERNETES|DOCKER|SSH|BUILDKITE|JENKINS|CIRCLE|TRAVIS|PYTEST|XDG|ASSAY|LC"
    r"|NPM_CONFIG|npm|PIP|UV|COV_CORE|COVERAGE|TERM|BASH_FUNC|VSCODE|TMUX)_\w*|\w+_SERVICE_HOST|\w+_SERVICE_PORT\w*|\w+_PORT_\d\w*"
    r"|PATH|HOME|PWD|OLDPWD|USER|LOGNAME|SHELL|TERM|TMPDIR|TEMP|TMP|LANG|LANGUAGE|TZ|HOST|HOSTNAME|SHLVL|_"
    r"|COLUMNS|LINES|DISPLAY|EDITOR|PAGER|CI|PROMPT|PPID|UID|EUID|IFS|OPTARG|OPTIND|RANDOM|SECONDS|PS\d"
    r"|NO_COLOR|FORCE_COLOR|COLORTERM|PYTHONPATH|NODE_PATH|VIRTUAL_ENV|PYTHON(?:DONTWRITEBYTECODE|UNBUFFERED"
    r"|HASHSEED|IOENCODING|UTF8|WARNINGS)|(?:\w*_)?(?:LOG(?:S|GING|GER|LEVEL|FILE|DIR)?|DEBUG|VERBOSE)(?:_\w*)?|(?:\w*_)?TRACE(?:_(?:ID|LEVEL|FILE|DIR))?"
)


@cache
def is_secret_name(name: str) -> bool:
    """Whether a variable of this name holds a secret."""
    words = [word.upper() for word in _WORDS.findall(name)]
    if _NO_SECRET.fullmatch(name.upper()) or not words:
        return False
    if words[-1] in _ABOUT_SECRETS and "WEBHOOK" not in words:
        return False
    for before, word in zip(["", *words], words, strict=False):
        if word == "KEY" and before in ("PUBLIC", "PUB"):
            continue
        if _SECRET_WORD.fullmatch(word) and (word == "PWD" or not _NO_SECRET.fullmatch(word)):
            return True
    return "CONNECTION" in words and words[-1] == "STRING"


@cache
def decides_nothing(name: str) -> bool:
    """Whether a variable of this name says where and how a program runs, and not what it does."""
    return re.fullmatch(_NO_CHOICE, name) is not None
