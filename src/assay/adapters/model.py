"""A model by its URL, for judges and simulated users: three wire formats, no agent.

Pure, as every adapter: it makes the request and reads the answer. What sends the request is
run/http.py, which alone knows the key.
"""

import os
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec
from msgspec import UNSET

from assay.adapters.prices import with_cost
from assay.adapters.reading import (
    integer_at,
    list_at,
    object_at,
    objects_at,
    parse_line,
    text_at,
)
from assay.errors import InputError
from assay.plugin import Adapter, Ask, Command, Reading
from assay.records.capture import AgentInfo, Cause, Events, Failure, Usage
from assay.records.http import HttpAnswer, HttpRequest, is_loopback
from assay.records.recording import RawLine, Recording
from assay.records.spec import TrialSpec
from assay.records.variable_names import is_secret_name

_EXAMPLE = "for example: -g 'judge:model=gpt-5,url=http://127.0.0.1:8000/v1,rubric=Is it kind?'"
_MOST_TOKENS = 4096
"""Of an answer, where the format wants a number."""
_AUTH_STATUS = (401, 403)
_OVERLOADED = (408, 500, 502, 503, 504)
"""Worth another attempt, as 429 and 529 are, which the limiter knows."""


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What one of the formats says, in the words of all."""

    text: str
    model: str | None
    usage: Usage | None
    stop: str
    """end, length or refusal, or the provider's own word."""


class _Format(msgspec.Struct, frozen=True, kw_only=True):
    """One of the three wire formats."""

    url: str
    """Where its provider is."""
    path: str
    """Of the question, below url; {model} is replaced."""
    version: str
    """With what a path begins; it is added to a url that has no path."""
    key: str
    """The variable that its clients take the key from."""
    key_header: str
    key_prefix: str = ""
    headers: dict[str, str] = {}
    body: Callable[["ModelAdapter", str], dict[str, Any]]
    read: Callable[[dict[str, Any]], _Answer]


class ModelAdapter(Adapter):
    """Asks a model by its URL, each question alone. It is no agent: it has no tools and no folder.

    model is NAME, or openai:NAME, anthropic:NAME or gemini:NAME for the format of that provider;
    key is the name of the variable that holds the key, or none.
    """

    name = "model"

    def __init__(
        self,
        model: str,
        url: str = "",
        key: str = "",
        temperature: float | None = None,
        max_tokens: int | None = None,
    ) -> None:
        kind, colon, rest = model.partition(":")
        self.api, self.model = (kind, rest) if colon and kind in _FORMATS else ("openai", model)
        if not self.model:
            msg = "a model by URL needs the name of the model"
            raise InputError(msg, hint=_EXAMPLE)
        self._format = _FORMATS[self.api]
        self.temperature, self.max_tokens = temperature, max_tokens
        self.url = self._checked(url or self._format.url)
        self.key = self._key(url, key)
        self.provider = urlsplit(self.url).netloc

    def _checked(self, url: str) -> str:
        try:
            split = urlsplit(url)
            fits = split.scheme in ("http", "https") and split.hostname and (split.port or 1)
        except ValueError:
            fits, split = None, urlsplit("")
        if not fits or split.query or split.fragment:
            msg = f"url={_without_login(url)!r} is not the base URL of a model"
            raise InputError(msg, hint="write http:// or https://, a host and a path, no query")
        if split.username or split.password:
            msg = f"url={_without_login(url)!r} has a login in it, which results would show"
            raise InputError(msg, hint="put the key into a variable and name it: key=NAME")
        base = url.rstrip("/")
        end = self._format.path.format(model=quote(self.model, safe=""))
        if base.endswith(end):
            return base
        version = self._format.version
        if version and not split.path.rstrip("/").endswith((version, "/v1")):
            base += "" if self.api == "openai" and split.path.strip("/") else version
        return base + end

    def _key(self, url: str, key: str) -> str:
        """Return the variable of the key; refuse what would show the key to others."""
        if key == "none":
            return ""
        if key and not is_secret_name(key):
            msg = f"key={key}: by its name, no variable that holds a key, so nothing would mask it"
            raise InputError(msg, hint="give it a name such as JUDGE_API_KEY")
        split = urlsplit(self.url)
        host = split.hostname or ""
        is_safe = split.scheme == "https" or is_loopback(host)
        if key and not is_safe:
            msg = f"key={key}: http:// would send the key to {host} as everybody can read it"
            raise InputError(msg, hint="use https://, or key=none if the server needs no key")
        name = key or self._format.key
        if (key or not url) and not os.environ.get(name, "").strip():
            msg = f"{name} is not set, and the model {self.model} at {split.netloc} needs a key"
            raise InputError(msg, hint=f"export {name}=…, or name another variable: key=NAME")
        return name if is_safe else ""

    def command(self, ask: Ask) -> Command:
        """Say what is used; AskingHost sends the request itself."""
        return Command(
            argv=(self.name,), pass_env=(self.key,) if self.key else (), endpoints=(self.url,)
        )

    def provider_settings(self) -> dict[str, Any]:
        """Return what decides the answers: the URL with the format in its path, and the rest."""
        settings = {"model": self.model, "url": self.url, "temperature": self.temperature}
        return {**settings, "max_tokens": self.max_tokens}

    def request(self, text: str) -> HttpRequest:
        """Return the request that puts one question."""
        return HttpRequest(
            url=self.url,
            body=msgspec.json.encode(self._format.body(self, text)),
            headers=self._format.headers,
            key_variable=self.key,
            key_header=self._format.key_header,
            key_prefix=self._format.key_prefix,
        )

    def read(self, recording: Recording) -> Reading:
        """Read the answer; see answer_lines for what was recorded of it."""
        failure, answer = None, None
        for turn in recording.turns[-1:]:
            head, *rest = turn.lines()
            body = parse_line(rest[0].text) if rest else None
            failure = self._refusal(parse_line(head.text), body)
            if failure is None:
                answer = self._format.read(body if isinstance(body, dict) else {})
                failure = _ended_early(answer, is_json=isinstance(body, dict))
        usage = answer.usage if answer is not None else None
        model = answer.model if answer is not None else None
        return Reading(
            steps=[],
            outputs=[answer.text] if answer is not None else [],
            events=Events(total=len(recording.turns), mapped=len(recording.turns)),
            usage=with_cost(model or self.model, usage) if usage is not None else None,
            agent=AgentInfo(adapter=self.name, model=model or self.model),
            failure=failure,
            terminal_required=False,
        )

    def _refusal(self, head: Any, body: Any) -> Failure | None:
        """Return why a server did not answer the question, by its status."""
        status = integer_at(head, "status") or 0
        if 200 <= status < 300:
            return None
        why = text_at(body, "error", "message") or text_at(body, "message")
        why = why or text_at(body, "error") or ""
        said = f"status {status}" + (f": {why[:500]}" if why else "")
        if 300 <= status < 400:
            place = _without_login(text_at(head, "headers", "location") or "another URL")
            msg = f"status {status}: {self.provider} redirects to {place[:200]}, which is not "
            msg += "followed; give that URL as url= if it is right"
            return Failure(cause=Cause.PROVIDER, message=msg)
        if status in _AUTH_STATUS:
            key = f"the key in {self.key}" if self.key else "a request without a key"
            return Failure(cause=Cause.AUTH, message=f"{self.provider} refuses {key}: {said}")
        wait = text_at(head, "headers", "retry-after") or ""
        said += f"; retry in {wait} s" if wait.isdecimal() else ""
        again = 0.0 if status in _OVERLOADED else None
        return Failure(cause=Cause.PROVIDER, message=said, retry_after_ms=again)

    def check_trials(self, specs: Sequence[TrialSpec]) -> None:
        """Refuse it as an agent."""
        msg = "a model by URL is no agent: it has no tools and no folder to work in"
        raise InputError(msg, hint="name it as a judge (-g judge:model=…) or as a user's model")


def answer_lines(answer: HttpAnswer) -> list[RawLine]:
    """Return an answer as it is recorded: its status and headers, then its body."""
    head = {"status": answer.status, "headers": answer.headers}
    return [RawLine(0, msgspec.json.encode(head)), RawLine(0, answer.body)]


def _ended_early(answer: _Answer, *, is_json: bool) -> Failure | None:
    if not is_json:
        why = "the answer is not the JSON of a model"
    elif answer.stop == "refusal":
        why = f"the model refused to answer{f': {answer.text[:300]}' if answer.text else ''}"
    elif answer.stop == "length":
        why = "the answer was cut off at the limit of tokens; max_tokens=N raises it"
    elif not answer.text.strip():
        why = f"the model answered nothing (it ended with {answer.stop or 'no reason'!r})"
    else:
        return None
    return Failure(cause=Cause.PROVIDER, message=why)


def _without_login(url: str) -> str:
    """Return a URL as it may be shown: a login and a query may be secrets."""
    start, at, rest = url.partition("://")
    return (start + at + rest.split("@")[-1]).partition("?")[0]


def _texts(parts: list[dict[str, Any]]) -> str:
    return "".join(text_at(part, "text") or "" for part in parts if not part.get("thought"))


def _usage(total_input: int | None, cached: int, output: int | None, **more: int) -> Usage | None:
    """Return usage in categories that do not overlap; providers count what was cached as input."""
    if total_input is None and output is None:
        return None
    counted: dict[str, Any] = {"cache_read_tokens": cached, **more}
    return Usage(
        input_tokens=UNSET if total_input is None else max(0, total_input - cached),
        output_tokens=UNSET if output is None else output,
        **{name: n for name, n in counted.items() if n},
    )


def _openai_body(adapter: ModelAdapter, text: str) -> dict[str, Any]:
    body = {
        "model": adapter.model,
        "messages": [{"role": "user", "content": text}],
        "temperature": adapter.temperature,
        "max_completion_tokens": adapter.max_tokens,
    }
    return {name: value for name, value in body.items() if value is not None}


def _read_openai(body: dict[str, Any]) -> _Answer:
    choice = next(iter(objects_at(body, "choices")), {})
    message, counts = object_at(choice, "message"), object_at(body, "usage")
    content = message.get("content")
    refusal = text_at(message, "refusal")
    text = content if isinstance(content, str) else _texts(objects_at(message, "content"))
    reason = text_at(choice, "finish_reason") or ""
    known = {"stop": "end", "content_filter": "refusal"}
    output = integer_at(counts, "completion_tokens")
    reasoning = integer_at(counts, "completion_tokens_details", "reasoning_tokens") or 0
    return _Answer(
        text=refusal or text,
        model=text_at(body, "model"),
        usage=_usage(
            integer_at(counts, "prompt_tokens"),
            integer_at(counts, "prompt_tokens_details", "cached_tokens") or 0,
            None if output is None else max(0, output - reasoning),
            reasoning_tokens=reasoning,
        ),
        stop="refusal" if refusal else known.get(reason, reason),
    )


def _anthropic_body(adapter: ModelAdapter, text: str) -> dict[str, Any]:
    body = {
        "model": adapter.model,
        "max_tokens": adapter.max_tokens or _MOST_TOKENS,
        "messages": [{"role": "user", "content": text}],
        "temperature": adapter.temperature,
    }
    return {name: value for name, value in body.items() if value is not None}


def _read_anthropic(body: dict[str, Any]) -> _Answer:
    counts = object_at(body, "usage")
    reason = text_at(body, "stop_reason") or ""
    known = {"end_turn": "end", "stop_sequence": "end", "max_tokens": "length"}
    blocks = [one for one in objects_at(body, "content") if one.get("type") == "text"]
    return _Answer(
        text=_texts(blocks),
        model=text_at(body, "model"),
        usage=_usage(
            integer_at(counts, "input_tokens"),
            0,
            integer_at(counts, "output_tokens"),
            cache_read_tokens=integer_at(counts, "cache_read_input_tokens") or 0,
            cache_write_tokens=integer_at(counts, "cache_creation_input_tokens") or 0,
        ),
        stop=known.get(reason, reason),
    )


def _gemini_body(adapter: ModelAdapter, text: str) -> dict[str, Any]:
    given = {"temperature": adapter.temperature, "maxOutputTokens": adapter.max_tokens}
    settings = {name: value for name, value in given.items() if value is not None}
    contents = [{"role": "user", "parts": [{"text": text}]}]
    return {"contents": contents, **({"generationConfig": settings} if settings else {})}


def _read_gemini(body: dict[str, Any]) -> _Answer:
    candidate = next(iter(objects_at(body, "candidates")), {})
    counts = object_at(body, "usageMetadata")
    blocked = text_at(body, "promptFeedback", "blockReason")
    reason = blocked or text_at(candidate, "finishReason") or ""
    known = {"STOP": "end", "MAX_TOKENS": "length", blocked: "refusal"}
    known |= dict.fromkeys(("SAFETY", "RECITATION", "PROHIBITED_CONTENT", "BLOCKLIST"), "refusal")
    parts = list_at(candidate, "content", "parts")
    return _Answer(
        text=_texts([part for part in parts if isinstance(part, dict)]),
        model=text_at(body, "modelVersion"),
        usage=_usage(
            integer_at(counts, "promptTokenCount"),
            integer_at(counts, "cachedContentTokenCount") or 0,
            integer_at(counts, "candidatesTokenCount"),
            reasoning_tokens=integer_at(counts, "thoughtsTokenCount") or 0,
        ),
        stop=known.get(reason, reason),
    )


_FORMATS = {
    "openai": _Format(
        url="https://api.openai.com/v1",
        path="/chat/completions",
        version="/v1",
        key="OPENAI_API_KEY",
        key_header="authorization",
        key_prefix="Bearer ",
        body=_openai_body,
        read=_read_openai,
    ),
    "anthropic": _Format(
        url="https://api.anthropic.com",
        path="/messages",
        version="/v1",
        key="ANTHROPIC_API_KEY",
        key_header="x-api-key",
        headers={"anthropic-version": "2023-06-01"},
        body=_anthropic_body,
        read=_read_anthropic,
    ),
    "gemini": _Format(
        url="https://generativelanguage.googleapis.com",
        path="/models/{model}:generateContent",
        version="/v1beta",
        key="GEMINI_API_KEY",
        key_header="x-goog-api-key",
        body=_gemini_body,
        read=_read_gemini,
    ),
}
