"""Python functions that a program gives as an agent or a grader.

A plugin travels as a name and options, a function cannot: it exists in the process that defined it,
and in copies of that process. So its options are a key, and `known` has the function.
"""

import hashlib
import inspect
import textwrap
from collections.abc import Callable, Iterable
from functools import partial
from types import CodeType
from typing import TYPE_CHECKING, Any

import msgspec

from assay.errors import InputError, PluginError
from assay.records.spec import FunctionCall

if TYPE_CHECKING:
    import asyncio

PLUGIN = "function"
"""The name of the adapter and of the grader that call a function."""
_LAMBDA = "<lambda>"
_HEX_DIGITS = 12

known: dict[str, Callable[..., Any]] = {}
"""The functions of this process by their key."""


def by_key(functions: Iterable[Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """Return functions by their keys; refuse two that cannot be told apart."""
    found: dict[str, Callable[..., Any]] = {}
    for function in functions:
        name = str(getattr(function, "__name__", type(function).__name__)).strip("<>")
        version = version_of(function)
        key = f"{name}@{version}"
        if found.setdefault(key, function) is not function:
            msg = f"two functions are called {name!r} and have the same source"
            raise InputError(msg, hint="give them different names")
    return found


def as_text(function: Callable[..., Any]) -> str:
    """Return what stands for a function where -s or -g would name an agent or a grader."""
    # One that was sent here may have left its source behind, and would get another version.
    sent = (key for key, one in known.items() if one is function)
    key = next(sent, None) or next(iter(by_key([function])))
    return f"{PLUGIN}:{key}"


def split_key(key: str) -> tuple[str, str]:
    """Return the name and the version of a function."""
    name, _, version = key.rpartition("@")
    return name, version


def find(key: str) -> Callable[..., Any]:
    """Return the function of a reference."""
    try:
        return known[key]
    except KeyError:
        msg = f"the Python function {split_key(key)[0]!r} is not in this process"
        raise PluginError(
            msg, hint="functions work only in the program that defines them"
        ) from None


def version_of(function: Callable[..., Any]) -> str:
    """Hash the source of a function with its defaults and what it encloses.

    What it calls or imports does not count. A lambda is hashed by its code, since its line may have
    several.
    """
    digest = hashlib.sha256()
    _add(digest.update, function, set())
    return digest.hexdigest()[:_HEX_DIGITS]


def _add(add: Callable[[bytes], Any], value: Any, seen: set[int]) -> None:
    if id(value) in seen:  # a function that encloses itself
        return
    seen.add(id(value))
    code = getattr(value, "__code__", None)
    parts: list[Any] = []
    if inspect.ismethod(value):
        parts = [value.__func__, getattr(value.__self__, "__dict__", None)]
    elif isinstance(code, CodeType):
        add(_source(value, code).encode("utf-8", "replace"))
        cells = [_content(cell) for cell in getattr(value, "__closure__", None) or ()]
        parts = [value.__defaults__, value.__kwdefaults__, *cells]
    elif isinstance(value, partial):
        parts = [value.func, value.args, value.keywords]
    elif callable(value) and not isinstance(value, type):
        parts = [type(value).__call__, getattr(value, "__dict__", None)]
    else:
        add(_plain(value))
    for part in parts:
        _add(add, part, seen)


def _source(function: Callable[..., Any], code: CodeType) -> str:
    if code.co_name != _LAMBDA:
        try:
            return textwrap.dedent(inspect.getsource(function))
        except (OSError, TypeError):  # typed in at a prompt, or built by exec
            pass
    return _code_text(code)


def _code_text(code: CodeType) -> str:
    constants = [_code_text(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts]
    return repr((code.co_code, constants, code.co_names, code.co_varnames))


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not set yet
        return None


def _plain(value: Any) -> bytes:
    """Encode a value that is data; of others only the type counts: a text would hold an address."""
    try:
        return msgspec.json.encode(value, order="deterministic")
    except (TypeError, ValueError, RecursionError):
        return repr(type(value)).encode()


def new_runner() -> "asyncio.Runner":
    """Return an event loop for async functions."""
    import asyncio  # late: it takes 10 ms, and few functions are async

    return asyncio.Runner()


def answer_to(called: FunctionCall) -> str:
    """Call an agent's function and return its answer."""
    function = find(called.key)
    takes = inspect.signature(function).parameters
    value = function(called.text, **({"history": called.history} if "history" in takes else {}))
    if inspect.iscoroutine(value):
        with new_runner() as runner:
            value = runner.run(value)
    if not isinstance(value, str):
        msg = f"the agent returned {type(value).__name__}, and not a text"
        raise TypeError(msg)
    return value
