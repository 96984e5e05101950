"""The page of report and viewer: our scripts and styles in one HTML text, under a strict policy."""

import base64
import hashlib
import html
import re
from functools import cache
from importlib.resources import files

from assay import __version__

_IMPORT = re.compile(r'^import \{[^}]*\} from "\./([a-z_]+)\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=async function|function|const|class)", re.MULTILINE)
_STYLES = ("base.css", "pages.css", "charts.css")
_MAIN = "main"
_NOTHING_ELSE = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)


def page_head(title: str, *, live: bool = False) -> str:
    """Give the page up to where data may stand; only the live one may ask its own server."""
    return _asset("page.html").format(
        csp=html.escape(policy(live=live)),
        version=__version__,
        title=html.escape(title),
        style=_style(),
    )


def page_end() -> str:
    """Give the end of the page: the script, which runs when all data has been read."""
    return f'<script type="module">{script()}</script>\n</body>\n</html>\n'


def policy(*, live: bool = False) -> str:
    """Allow our script and our style by their hashes, and nothing else in the world."""
    connect = "connect-src 'self'; " if live else ""
    return (
        f"script-src '{_hash(script())}'; style-src '{_hash(_style())}'; {connect}{_NOTHING_ELSE}"
    )


@cache
def script() -> str:
    """Join the modules in the order of their imports: a file on disk may not import others."""
    texts: dict[str, str] = {}
    _collect(_MAIN, texts)
    return "\n" + "\n".join(
        f"// {name}.js\n{_EXPORT.sub('', _IMPORT.sub('', text))}" for name, text in texts.items()
    )


def _collect(name: str, texts: dict[str, str], above: tuple[str, ...] = ()) -> None:
    if name in texts or name in above:  # functions may use each other across modules
        return
    text = _asset(f"{name}.js")
    for needed in _IMPORT.findall(text):
        _collect(needed, texts, (*above, name))
    texts[name] = text


@cache
def _style() -> str:
    return "\n" + "\n".join(_asset(name) for name in _STYLES)


def _asset(name: str) -> str:
    return files("assay.report").joinpath("assets", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
