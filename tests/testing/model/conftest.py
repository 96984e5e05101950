"""A small client that asks a scripted model in the words of each provider."""

import http.client
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from assay.testing.model import ScriptedModel

SHELLS = {
    "anthropic": ("Bash", "command"),
    "responses": ("exec_command", "cmd"),
    "chat": ("bash", "command"),
    "gemini": ("run_shell_command", "command"),
}


@dataclass(frozen=True)
class Got:
    """An answer as it came."""

    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def events(self) -> list[Any]:
        lines = [line for line in self.text.splitlines() if line.startswith("data: {")]
        return [json.loads(line.removeprefix("data: ")) for line in lines]

    def of_type(self, kind: str) -> list[Any]:
        return [event for event in self.events if event.get("type") == kind]


@dataclass(frozen=True)
class Client:
    """Asks one provider's endpoint of a scripted model."""

    provider: str
    url: str
    timeout_s: float = 5
    headers: dict[str, str] = field(default_factory=dict)

    def ask(
        self,
        prompt: str = "hello",
        *,
        stream: bool = True,
        answers: int = 0,
        result: str = "",
        tools: bool = True,
        **more: Any,
    ) -> Got:
        """Ask with so many earlier answers in the history and maybe a tool result at its end."""
        body = {**HISTORIES[self.provider](prompt, answers, result), **more}
        if tools:
            body["tools"] = [_tool(self.provider)]
        path = PATHS[self.provider]
        if self.provider == "gemini":
            path = path if stream else path.replace("streamGenerate", "generate").split("?")[0]
        else:
            body |= {"model": "test-model", "stream": stream}
        return self.post(path, body)

    def post(self, path: str, body: Any) -> Got:
        return self.send("POST", path, json.dumps(body).encode())

    def send(self, method: str, path: str, data: bytes = b"", **headers: str) -> Got:
        _, rest = self.url.split("//")
        host, _, prefix = rest.partition("/")
        connection = http.client.HTTPConnection(host, timeout=self.timeout_s)
        try:
            sent = {"content-type": "application/json", **self.headers, **headers}
            path = f"/{prefix}{path}" if prefix else path
            connection.request(method, path, data, sent)
            response = connection.getresponse()
            text = response.read().decode()
            return Got(response.status, {k.lower(): v for k, v in response.getheaders()}, text)
        finally:
            connection.close()


@pytest.fixture(params=["anthropic", "responses", "chat", "gemini"])
def provider(request: pytest.FixtureRequest) -> str:
    """Each of the four providers."""
    return str(request.param)


@pytest.fixture
def client() -> Callable[..., Client]:
    """Make a client for a running model."""

    def make(model: ScriptedModel | None, provider: str = "anthropic", **options: Any) -> Client:
        if model is not None:
            options.setdefault("url", model.url)
        return Client(provider, **options)

    return make


@pytest.fixture
def text_of() -> Callable[[str, Got], str]:
    """Read the answer's text, whichever provider said it, streamed or not."""
    return _text_of


@pytest.fixture
def ids_of() -> Callable[[str, Got], list[str]]:
    """Read the ids of the answer's tool calls from a streamed answer."""

    def read(provider: str, got: Got) -> list[str]:
        if provider == "anthropic":
            blocks = [e["content_block"] for e in got.of_type("content_block_start")]
            return [block["id"] for block in blocks if block["type"] == "tool_use"]
        if provider == "responses":
            items = [e["item"] for e in got.of_type("response.output_item.done")]
            return [item["call_id"] for item in items if "call_id" in item]
        if provider == "chat":
            deltas = [e["choices"][0]["delta"] for e in got.events if e["choices"]]
            calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
            return [call["id"] for call in calls if "id" in call]
        parts = [p for e in got.events for p in e["candidates"][0]["content"]["parts"]]
        return [part["functionCall"]["id"] for part in parts if "functionCall" in part]

    return read


def _text_of(provider: str, got: Got) -> str:
    streamed = got.headers["content-type"].startswith("text/event-stream")
    if provider == "anthropic":
        if streamed:
            deltas = [event["delta"] for event in got.of_type("content_block_delta")]
            return "".join(delta.get("text", "") for delta in deltas)
        return "".join(block.get("text", "") for block in got.json["content"])
    if provider == "responses":
        whole = got.of_type("response.completed")[0]["response"] if streamed else got.json
        messages = [item for item in whole["output"] if item["type"] == "message"]
        return "".join(item["content"][0]["text"] for item in messages)
    if provider == "chat":
        if streamed:
            deltas = [e["choices"][0]["delta"] for e in got.events if e["choices"]]
            return "".join(delta.get("content") or "" for delta in deltas)
        return got.json["choices"][0]["message"]["content"] or ""
    answers = got.events if streamed else [got.json]
    parts = [part for a in answers for part in a["candidates"][0]["content"]["parts"]]
    return "".join(part.get("text", "") for part in parts if not part.get("thought"))


def _tool(provider: str) -> dict[str, Any]:
    name, argument = SHELLS[provider]
    schema = {"type": "object", "properties": {argument: {"type": "string"}}}
    if provider == "anthropic":
        return {"name": name, "input_schema": schema}
    if provider == "responses":
        return {"type": "function", "name": name, "parameters": schema}
    if provider == "chat":
        return {"type": "function", "function": {"name": name, "parameters": schema}}
    return {"functionDeclarations": [{"name": name, "parametersJsonSchema": schema}]}


def _anthropic(prompt: str, answers: int, result: str) -> dict[str, Any]:
    messages: list[Any] = [{"role": "user", "content": [{"type": "text", "text": prompt}]}]
    for number in range(answers):
        use = {"type": "tool_use", "id": f"t{number}", "name": "Bash", "input": {}}
        done = {"type": "tool_result", "tool_use_id": f"t{number}", "content": result}
        messages += [{"role": "assistant", "content": [{"type": "text", "text": "…"}, use]}]
        messages += [{"role": "user", "content": [done]}]
    return {"max_tokens": 100, "messages": messages}


def _responses(prompt: str, answers: int, result: str) -> dict[str, Any]:
    content = [{"type": "input_text", "text": prompt}]
    items: list[Any] = [{"type": "message", "role": "user", "content": content}]
    for number in range(answers):
        said = [{"type": "output_text", "text": "…"}]
        items += [{"type": "reasoning", "summary": []}]
        items += [{"type": "message", "role": "assistant", "content": said}]
        items += [{"type": "function_call", "call_id": f"c{number}", "name": "exec_command"}]
        items += [{"type": "function_call_output", "call_id": f"c{number}", "output": result}]
    return {"input": items}


def _chat(prompt: str, answers: int, result: str) -> dict[str, Any]:
    messages: list[Any] = [
        {"role": "system", "content": "be good"},
        {"role": "user", "content": prompt},
    ]
    for number in range(answers):
        messages += [{"role": "assistant", "content": "…", "tool_calls": [{"id": f"c{number}"}]}]
        messages += [{"role": "tool", "tool_call_id": f"c{number}", "content": result}]
    return {"messages": messages}


def _gemini(prompt: str, answers: int, result: str) -> dict[str, Any]:
    contents: list[Any] = [{"role": "user", "parts": [{"text": prompt}]}]
    for _ in range(answers):
        call = {"functionCall": {"name": "run_shell_command", "args": {}}}
        done = {"name": "run_shell_command", "response": {"output": result}}
        contents += [{"role": "model", "parts": [{"text": "…"}, call]}]
        contents += [{"role": "user", "parts": [{"functionResponse": done}]}]
    return {"contents": contents}


HISTORIES = {
    "anthropic": _anthropic,
    "responses": _responses,
    "chat": _chat,
    "gemini": _gemini,
}
PATHS = {
    "anthropic": "/v1/messages",
    "responses": "/v1/responses",
    "chat": "/v1/chat/completions",
    "gemini": "/v1beta/models/test-model:streamGenerateContent?alt=sse",
}
