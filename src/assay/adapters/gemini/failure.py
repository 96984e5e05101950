"""How a turn of Gemini CLI went: from its result event, its error events, and only then codes."""

import re
from collections.abc import Iterable, Sequence

import msgspec

from assay.adapters.gemini.stream import GeminiTurn, Use
from assay.adapters.vendor import start_failure, status_cause, text_cause
from assay.records.capture import Cause, Failure
from assay.records.recording import TurnEnd

_TYPES = {
    "FatalTurnLimitedError": Cause.AGENT_LIMIT,
    "FatalAuthenticationError": Cause.AUTH,
    "FatalInputError": Cause.SPAWN,
    "FatalSandboxError": Cause.SPAWN,
    "FatalConfigError": Cause.SPAWN,
    "FatalToolExecutionError": Cause.AGENT_CRASH,
    "FatalCancellationError": Cause.AGENT_CRASH,
}
_EXITS = {41: Cause.AUTH, 42: Cause.SPAWN, 44: Cause.SPAWN, 52: Cause.SPAWN, 55: Cause.SPAWN}
"""Codes of a process that ended before its first event."""
_WORDS: tuple[tuple[re.Pattern[str], Cause], ...] = (
    (re.compile(r"blocked", re.IGNORECASE), Cause.AGENT_REFUSED),
    (
        re.compile(r"loop detected|token limit|maximum session turns", re.IGNORECASE),
        Cause.AGENT_LIMIT,
    ),
    (
        re.compile(r"empty (text )?response|reasoning thoughts but no final", re.IGNORECASE),
        Cause.PROVIDER,
    ),
)
_API_ERROR = re.compile(r"\[API Error: (.*)\]", re.DOTALL)
_THROWN = re.compile(r"ApiError: (\{.*\})")
_AUTH = re.compile(r"api.?key not valid|API_KEY_INVALID|PERMISSION_DENIED|UNAUTHENTICATED", re.I)
_ATTEMPT = re.compile(r"^Attempt (\d+) failed(.*)$", re.MULTILINE)
_STATUS = re.compile(r"\bstatus (\d{3})\b|\"code\":\s*(\d{3})\b|\b(429)\b|\b(5)xx\b")
_STOPS = ("Loop detected", "Maximum session turns")
_MCP_ISSUES = "MCP issues detected"
_NOISE = re.compile(
    r"^(YOLO mode|Warning: 256-color|Ripgrep is not|Loaded cached|Approval mode|MCP issues)"
)


def failure_of_turn(turn: GeminiTurn, end: TurnEnd, stderr: str) -> Failure | None:
    """Give what Gemini CLI itself says went wrong, None when it says nothing."""
    result = turn.result
    if result is not None:
        return _of_result(turn) if result.status != "success" else _stopped(turn)
    if turn.session_id is None and not turn.events.mapped:
        return _of_start(end, stderr)
    return _of_attempts(stderr)


def count_retries(stderr: str) -> int:
    """Count how often it asked again, as far as the end of its stderr tells."""
    tries = [int(n) for n, rest in _ATTEMPT.findall(stderr) if "Retrying" in rest]
    return max([len(tries), *tries])


def server_states(names: Iterable[str], turns: Sequence[GeminiTurn], stderr: str) -> dict[str, str]:
    """Say which MCP servers were there: it tells only that some were not, never which."""
    names = tuple(names)
    if _MCP_ISSUES not in stderr:
        return dict.fromkeys(names, "connected")
    uses = [part for turn in turns for part in turn.parts if isinstance(part, Use)]
    answered = {name for use in uses for name in names if _has_answered(use, name)}
    silent = [name for name in names if name not in answered]
    state = "failed" if len(silent) == 1 else "unknown"
    return {name: "connected" if name in answered else state for name in names}


def _has_answered(use: Use, server: str) -> bool:
    error = (use.result or {}).get("error")
    missing = isinstance(error, dict) and error.get("type") == "tool_not_registered"
    return use.name.startswith(f"mcp_{server}_") and use.result is not None and not missing


def _of_result(turn: GeminiTurn) -> Failure:
    error = turn.result.error if turn.result is not None else None
    said = [message for _, message in turn.errors]
    message = str((error or {}).get("message") or (said[-1] if said else "failed"))
    cause = _TYPES.get(str((error or {}).get("type"))) or _cause(message)
    return Failure(cause=cause, message=message[:2000])


def _stopped(turn: GeminiTurn) -> Failure | None:
    """A loop or a limit ends the turn with success; it is none."""
    for _, message in turn.errors:
        if message.startswith(_STOPS):
            return Failure(cause=Cause.AGENT_LIMIT, message=message[:2000], answered=True)
    return None


def _of_start(end: TurnEnd, stderr: str) -> Failure | None:
    words = "\n".join(line for line in stderr.splitlines() if not _NOISE.match(line))
    failure = start_failure("gemini", end, words)
    cause = _EXITS.get(end.exit_code or 0)
    if failure is None or cause is None:
        api = _API_ERROR.search(stderr) or _THROWN.search(stderr)
        if failure is None or api is None:
            return failure
        said = f"[API Error: {api[1]}]"
        return Failure(cause=_cause(said), message=said[:2000])
    return Failure(cause=cause, message=failure.message)


def _of_attempts(stderr: str) -> Failure | None:
    """It was still asking its provider again when it was ended."""
    tries = _ATTEMPT.findall(stderr)
    if not tries:
        return None
    number, rest = tries[-1]
    return Failure(cause=_status_cause(rest), message=f"Attempt {number} failed{rest}"[:500])


def _cause(message: str) -> Cause:
    if _AUTH.search(message):
        return Cause.AUTH
    for pattern, cause in _WORDS:
        if pattern.search(message):
            return cause
    api = _API_ERROR.search(message)
    if api is not None:
        return _body_cause(api[1]) or text_cause(message) or Cause.PROVIDER
    return text_cause(message) or Cause.AGENT_CRASH


def _body_cause(body: str) -> Cause | None:
    try:
        said = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None
    error = said.get("error") if isinstance(said, dict) else None
    code = error.get("code") if isinstance(error, dict) else None
    return status_cause(code) if isinstance(code, int) else None


def _status_cause(text: str) -> Cause:
    found = _STATUS.search(text)
    digits = next((group for group in found.groups() if group), "500") if found else "500"
    return status_cause(int(digits) if len(digits) == 3 else 500)
