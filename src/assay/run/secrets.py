"""Keep secrets of the environment out of everything that is written.

A value is covered wherever it stands in text, also JSON-escaped, URL-encoded or in base64. In JSON
only strings are covered, so that JSON stays JSON with the same numbers and names of fields.
"""

import json
import os
import re
from binascii import b2a_base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from itertools import count
from typing import Any, NamedTuple
from urllib.parse import quote, quote_plus, unquote

import msgspec

from assay.records.variable_names import is_secret_name


class _LazyPattern[T: (str, bytes)]:
    """A regular expression that is compiled at its first use: most runs have no secrets."""

    def __init__(self, pattern: T) -> None:
        self._pattern: T = pattern

    @cached_property
    def compiled(self) -> re.Pattern[T]:
        return re.compile(self._pattern)


_SHORTEST = 8
"""Shorter values are not covered: they occur in ordinary text."""
_STEPS = 4096
"""After so many strings or secrets of a text it is asked whether there is time for more."""
_LONGEST_WORD = 20
"""A longer value is covered even if it consists of letters only."""
_FLAGS = frozenset(["", "0", "1", "true", "false", "yes", "no", "on", "off", "none", "null"])
_WORD = _LazyPattern(r"[a-z_]+|[A-Z_]+|[A-Z]?[a-z]+(?:[A-Z][a-z]+)*")
_URL_PASSWORD = _LazyPattern(r"[A-Za-z][A-Za-z0-9+.-]*://([^/\s:@]*)(?::([^/\s@]+))?@")
_NAMED_PASSWORD = _LazyPattern(r"(?i)(?:password|pwd|accountkey|sharedaccesskey)=([^\s;]+)")


type HasTime = Callable[[], bool]
"""Is asked now and then in a long loop; raises Interrupted when the operator ends the run."""


class OutOfTime(Exception):
    """There was no time to mask all of a text that an agent wrote."""


def _timed[T](items: Iterable[T], has_time: HasTime | None) -> Iterable[T]:
    return items if has_time is None else _while_time(items, has_time)


def _while_time[T](items: Iterable[T], has_time: HasTime) -> Iterator[T]:
    for number, item in enumerate(items, 1):
        if number % _STEPS == 0 and not has_time():
            raise OutOfTime
        yield item


_LONGEST_CREDENTIAL = 8192
_MOST_CREDENTIALS = 8


class Secrets:
    """The secrets of one or more environments. Masks keep the length, so offsets stay valid."""

    def __init__(self, *envs: Mapping[str, str]) -> None:
        values: dict[str, None] = {}
        self._envs = envs
        self.refused: dict[str, str] = {}
        """Names of variables that look secret but are not covered, and why."""
        for name, value in (item for env in envs for item in env.items()):
            if not is_secret_name(name) and "://" not in value:
                continue
            for secret in _secrets_in(name, value):
                if not (why := _why_not(secret)):
                    values[secret] = None
                elif secret == value and value.lower() not in _FLAGS:
                    self.refused[name] = why
        self._search = _search_for(tuple(values))
        self.longest = max(map(len, self._search.needles), default=0)

    def with_credentials(self, values: Iterable[str]) -> "Secrets":
        """Return these secrets and those that a request proves its right with."""
        words = (value.rpartition(" ")[2] for value in values)  # without "Bearer"
        new = [word for word in words if word and not self.occur_in(word.encode())]
        new = [word for word in new if len(word) <= _LONGEST_CREDENTIAL][:_MOST_CREDENTIALS]
        named = {f"CREDENTIAL_{n}_KEY": word for n, word in enumerate(new)}
        return Secrets(*self._envs, named) if named else self

    def occur_in(self, data: bytes) -> bool:
        """Whether any secret stands in the data, in one of its spellings."""
        return bool(self.longest) and self._search.hits(data)

    def may_occur_in(self, text: bytes) -> bool:
        r"""The same for text with JSON in it, where any character may be written as \u00xx."""
        return bool(self.longest) and (
            self._search.hits(text)
            or b"\\/" in text
            or (b"\\u00" in text and _NEEDLESS_ESCAPE.compiled.search(text) is not None)
        )

    def mask(self, data: bytes, has_time: HasTime | None = None) -> bytes:
        """Mask what is no JSON as a whole, such as plain text or a database.

        A number that stands there as it does in JSON is left: it is none of the agent's words.
        """
        if not self.occur_in(data):
            return data
        spans = _timed(self._search.spans(data, has_time), has_time)
        return _covered(data, (span for span in spans if not _is_number(data, *span)))

    def mask_line(self, line: bytes, has_time: HasTime | None = None) -> bytes:
        """Mask one line: of JSON only its strings, of anything else all of it.

        Raises OutOfTime when has_time says no.
        """
        if not self.may_occur_in(line):
            return line
        mask = self._mask_json if _is_json(line) else self.mask
        return mask(line, has_time)

    def mask_file(self, data: bytes) -> bytes:
        """Mask a whole file: JSON, lines of JSON or text, or anything else."""
        if not self.may_occur_in(data):
            return data
        if b"\0" in data:
            return self.mask(data)
        if _is_json(data):
            return self._mask_json(data)
        data = _covered(data, (s for s in self._search.spans(data) if b"\n" in data[slice(*s)]))
        return b"\n".join(map(self.mask_line, data.split(b"\n")))

    def mask_text(self, text: str) -> str:
        """Mask a text; return the same object when there is nothing to mask."""
        data = text.encode("utf-8", "surrogatepass")
        if not self.occur_in(data):
            return text
        return _covered(data, self._search.spans(data)).decode("utf-8", "surrogatepass")

    def mask_record[T](self, record: T) -> T:
        """Mask every text in a record; return the same object when there is nothing to mask."""
        if not self.longest or not self.occur_in(msgspec.json.encode(record)):
            return record
        masked: T = self._mask_value(record)
        return masked

    def _mask_value(self, value: Any) -> Any:
        if type(value) is str:  # not an enumeration's
            return self.mask_text(value)
        if isinstance(value, dict):
            return {self._mask_key(k): self._mask_value(v) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(map(self._mask_value, value))
        if isinstance(value, msgspec.Struct):
            names = [name for name in value.__struct_fields__ if name not in _LEFT_ALONE]
            changes = {name: self._mask_field(name, getattr(value, name)) for name in names}
            return msgspec.structs.replace(value, **changes)
        return value

    def _mask_field(self, name: str, value: Any) -> Any:
        if name == "raw_lines":
            return [self.mask_line(line.encode()).decode("utf-8", "replace") for line in value]
        return self._mask_value(value)

    def _mask_key(self, key: Any) -> Any:
        is_data = isinstance(key, str) and not _FIELD_NAME.compiled.fullmatch(
            key.encode(errors="replace")
        )
        return self.mask_text(key) if is_data else key

    def _mask_json(self, text: bytes, has_time: HasTime | None = None) -> bytes:
        steps = iter(_timed(count(), has_time))

        def mask(found: re.Match[bytes]) -> bytes:
            next(steps)
            return self._mask_json_string(found, has_time)

        return _JSON_STRING.compiled.sub(mask, text)

    def _mask_json_string(self, found: re.Match[bytes], has_time: HasTime | None) -> bytes:
        inside, colon = found[1], found[2] or b""
        if colon and _FIELD_NAME.compiled.fullmatch(inside):
            return found[0]
        if b"\\" not in inside:
            spans = self._search.spans(inside, has_time) if self.occur_in(inside) else []
        elif self.occur_in(_text(inside)):
            text, starts = _unescaped(inside, has_time)
            found_in = self._search.spans(text, has_time)
            spans = [(starts[first], starts[last]) for first, last in found_in]
        else:
            return found[0]
        return b'"%b"%b' % (_covered(inside, _timed(spans, has_time)), colon)


type _Spans = list[tuple[int, int]]
_LEFT_ALONE = frozenset(["files", "id", "identity", "raw", "spec_hash"])
"""Fields by which rows are found again, which are the operator's; and files, masked before."""
_FIELD_NAME = _LazyPattern(rb"[A-Za-z_$]*")
"""A key in JSON that is a name and no data: never masked."""
_JSON_STRING = _LazyPattern(rb'"((?:[^"\\]++|\\.)*+)"(\s*+:)?+')
_ESCAPE = _LazyPattern(
    rb"[^\\]++|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\."
)
_SHORT_ESCAPES = {rb"\/": b"/", rb"\"": b'"', rb"\n": b"\n", rb"\t": b"\t", b"\\\\": b"\\"}
_NEEDLESS_ESCAPE = _LazyPattern(rb"\\u00[2-7]")
"""Of a character that need not be escaped; the others stand for control codes, which many write."""
_BEFORE_NUMBER = _LazyPattern(rb"[:\[,]\s*-?[0-9.]*\Z")
_AFTER_NUMBER = _LazyPattern(rb"[0-9.eE+-]*\s*(?:[,\]}]|\Z)")


def _is_json(text: bytes) -> bool:
    try:
        msgspec.json.decode(text)
    except RecursionError:
        return False
    except (msgspec.DecodeError, UnicodeDecodeError):
        # NaN, 1e999 and half a pair of surrogates, which agents write and adapters read.
        if not text.lstrip().startswith((b"{", b"[", b'"')):
            return False
        try:
            json.loads(text.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            return False
    return True


def _text(inside: bytes) -> bytes:
    """Return the text of a JSON string, quickly."""
    text: str = json.loads(f'"{inside.decode("utf-8", "replace")}"', strict=False)
    return text.encode("utf-8", "surrogatepass")


def _unescaped(inside: bytes, has_time: HasTime | None) -> tuple[bytes, list[int]]:
    """Return the text of a JSON string, and where each of its bytes is written."""
    parts: list[bytes] = []
    starts: list[int] = []
    for found in _timed(_ESCAPE.compiled.finditer(inside), has_time):
        part, first = found[0], found.start()
        if part.startswith(b"\\"):
            part = _SHORT_ESCAPES.get(part) or _text(part)
            starts += [first] * len(part)
        else:
            starts += range(first, found.end())
        parts.append(part)
    return b"".join(parts), [*starts, len(inside)]


def _is_number(data: bytes, first: int, last: int) -> bool:
    return (
        data[first:last].isdigit()
        and _BEFORE_NUMBER.compiled.search(data, max(0, first - 40), first) is not None
        and _AFTER_NUMBER.compiled.match(data, last, last + 40) is not None
    )


def _covered(data: bytes, spans: Iterable[tuple[int, int]]) -> bytes:
    covered = bytearray(data)
    for first, last in spans:
        # Line by line: to mask a line feed would change where lines end.
        lines = data[first:last].split(b"\n")
        covered[first:last] = b"\n".join(_redaction(len(line)) for line in lines)
    return bytes(covered)


def _redaction(length: int) -> bytes:
    return b"[redacted]"[:length].ljust(length, b"*")


def _secrets_in(name: str, value: str) -> Iterator[str]:
    """Yield what is secret in a variable: its value, a password in it, fields of JSON in it."""
    is_secret = is_secret_name(name)
    if is_secret and not _is_path(value):
        yield value
    if (
        "://" in value
        and (found := _URL_PASSWORD.compiled.match(value))
        and (found[2] or is_secret)
    ):
        yield value
        yield unquote(found[2] or found[1])
        yield found[2] or found[1]
    if is_secret and "=" in value:
        yield from _NAMED_PASSWORD.compiled.findall(value)
    if is_secret and value.startswith("{"):
        yield from _secret_fields(value)


def _secret_fields(value: str) -> Iterator[str]:
    try:
        fields = json.loads(value)
    except (ValueError, RecursionError):
        return
    for name, field in fields.items() if isinstance(fields, dict) else ():
        if isinstance(field, str) and is_secret_name(name):
            yield field


@lru_cache(256)
def _is_path(value: str) -> bool:
    # Cached: an agent that makes such a file later does not uncover the value.
    try:
        return value.startswith("/") and os.path.lexists(value)
    except ValueError:
        return False


def _why_not(value: str) -> str:
    """Return why a value cannot be covered, empty if it can."""
    if len(value) < _SHORTEST:
        return f"shorter than {_SHORTEST} characters"
    if len(value) < _LONGEST_WORD and _WORD.compiled.fullmatch(value):
        return "an ordinary word"
    return ""


class _Search(NamedTuple):
    """Finds spellings of secrets. Most data holds none, so that must be known quickly."""

    needles: tuple[bytes, ...]
    """Longest first: a secret may contain another one."""
    few: tuple[bytes, ...]
    """Those that are searched for one by one."""
    blocks: frozenset[int]
    """All pieces of 8 bytes of the others.

    Data that holds one of them has such a piece at an offset divisible by 8. To look at these
    takes a tenth of the time of 100 searches.
    """

    def hits(self, data: bytes) -> bool:
        for needle in self.few:
            if needle in data:
                return True
        if not self.blocks or self.blocks.isdisjoint(_blocks(data)):
            return False
        return any(needle in data for needle in self.needles)

    def spans(self, data: bytes, has_time: HasTime | None = None) -> _Spans:
        """Return where secrets stand, in order; those that overlap are one."""
        each = (span for needle in self.needles for span in _occurrences(needle, data))
        found = sorted(_timed(each, has_time))
        spans: _Spans = []
        for first, last in found:
            if spans and first < spans[-1][1]:
                spans[-1] = (spans[-1][0], max(last, spans[-1][1]))
            else:
                spans.append((first, last))
        return spans


_RESERVED = _LazyPattern("[^A-Za-z0-9._~-]")
_BLOCK = 8
_FEW = 16


def _blocks(data: bytes) -> memoryview:
    return memoryview(data)[: len(data) & -_BLOCK].cast("Q")


def _occurrences(needle: bytes, data: bytes) -> Iterator[tuple[int, int]]:
    first, is_digits = data.find(needle), needle.isdigit()
    while first >= 0:
        last = first + len(needle)
        # Within a longer number, such as a time, digits are no secret.
        alone = not (data[first - 1 : first].isdigit() or data[last : last + 1].isdigit())
        if alone or not is_digits:
            yield first, last
        first = data.find(needle, first + 1)


@lru_cache(256)
def _search_for(values: tuple[str, ...]) -> _Search:
    """Cached: all trials of a run have the same values."""
    found = {spelling for value in values for spelling in _spellings(value)}
    needles = tuple(sorted(found, key=len, reverse=True))
    # The shortest piece that surely holds a whole block, wherever it begins.
    short = tuple(needle for needle in needles if len(needle) < 2 * _BLOCK - 1)
    if len(needles) <= _FEW:
        return _Search(needles, needles, frozenset())
    pieces = (_blocks(needle[i:]) for needle in needles for i in range(_BLOCK))
    return _Search(needles, short, frozenset().union(*pieces))


def _spellings(value: str) -> Iterator[bytes]:
    """Yield every spelling of a value, and of each of its lines that is long enough."""
    plain = value.encode("utf-8", "surrogateescape").decode("utf-8", "replace").strip()
    texts = {plain, plain.replace("\\n", "\n")}
    for text in list(texts):
        lines = [line.strip() for line in text.splitlines()]
        texts.update(line for line in lines if len(line) >= _SHORTEST and line[:5] != "-----")
    texts = {text for text in texts if not _why_not(text)}
    for text in texts:
        yield from (spelling.encode() for spelling in _json_spellings(text))
        yield from (spelling.encode() for spelling in _url_spellings(text))
        yield from _base64_spellings(text.encode())


def _json_spellings(text: str) -> set[str]:
    """Return a text as it is, in a JSON string, and in a JSON string inside another one."""
    texts = {text}
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return texts
    for _ in range(2):
        texts |= {
            json.dumps(text, ensure_ascii=flag)[1:-1] for text in texts for flag in (False, True)
        }
    return texts


def _url_spellings(text: str) -> set[str]:
    """Return a text as the common functions write it into a URL, or into a form."""
    if not _RESERVED.compiled.search(text):
        return set()
    upper = {quote_plus(text), *(quote(text, safe) for safe in ("", "/", "!'()*"))}
    return upper | {re.sub("%..", lambda found: found[0].lower(), spelling) for spelling in upper}


def _base64_spellings(data: bytes) -> Iterator[bytes]:
    """Yield what stands in base64 of any text with the data in it, whatever precedes it there."""
    spellings = [b2a_base64(data, newline=False).rstrip(b"=")]
    for before in range(3):
        text = b2a_base64(bytes(before) + data, newline=False)
        # The characters that only the data decides: each stands for 6 bits.
        spellings.append(text[-(-before * 8 // 6) : (before + len(data)) * 8 // 6])
    whole = spellings[0]
    spellings += [whole[i : i + 76] for i in range(0, len(whole), 76)]  # as the command wraps it
    for spelling in spellings:
        if len(spelling) >= _SHORTEST:
            yield spelling
            yield spelling.replace(b"+", b"-").replace(b"/", b"_")
