"""Read OpenCode's log: the only place that tells of retries and of MCP servers that failed."""

import re
from dataclasses import dataclass
from pathlib import Path

from assay.adapters.moments import epoch_ms
from assay.adapters.vendor import text_cause
from assay.records.failure import Cause, Failure

_FIELD = re.compile(r'([\w.]+)=("(?:[^"\\]|\\.)*"|\S*)')


@dataclass(frozen=True)
class OpenCodeLog:
    """What matters of a log: errors of the provider in order, and servers that failed."""

    errors: tuple[tuple[float, str], ...] = ()
    """When (since the epoch, ms) and what."""
    failed_servers: tuple[str, ...] = ()

    def waiting_failure(self, since_ms: float) -> Failure | None:
        """Judge a turn that ended while OpenCode asked its provider again and again, in silence."""
        if not self.errors or self.errors[-1][0] < since_ms:
            return None
        message = self.errors[-1][1]
        cause = Cause.AUTH if text_cause(message) is Cause.AUTH else Cause.PROVIDER
        n = len(self.errors)
        return Failure(
            cause=cause, message=f"no answer from the provider after {n} tries: {message}"
        )


def read_log(kept: Path | None, stderr: str) -> OpenCodeLog:
    """Read the log file where it was kept, and what was printed on stderr.

    The same lines go to both; at the end of a process either may lack the last ones.
    """
    files = sorted(kept.glob("**/opencode/log/*.log")) if kept else []
    texts = [*(path.read_text("utf-8", "replace") for path in files), stderr]
    errors: list[tuple[float, str]] = []
    failed: dict[str, None] = {}
    for line in dict.fromkeys(line.strip() for text in texts for line in text.splitlines()):
        fields = _fields(line) if "level=ERROR" in line or "level=WARN" in line else {}
        message = fields.get("message")
        if message == "stream error" and fields.get("small") != "true":
            at = epoch_ms(fields.get("timestamp")) or 0.0
            errors.append((at, fields.get("error.error") or _last_field(fields)))
        elif message == "server unavailable" and "key" in fields:
            failed[fields["key"]] = None
    return OpenCodeLog(tuple(errors), tuple(failed))


def _fields(line: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in _FIELD.findall(line):
        quoted = len(value) > 1 and value.startswith('"')
        found[name] = re.sub(r"\\(.)", r"\1", value[1:-1]) if quoted else value
    return found


def _last_field(fields: dict[str, str]) -> str:
    named = [value for name, value in fields.items() if name.startswith("error")]
    return named[-1] if named else "stream error"
