"""When trials may start: not faster than asked for, and not while a provider refuses them."""

import re
import threading
import time
from collections.abc import Callable

import msgspec

from assay import plugins
from assay.records.capture import Cause, Failure
from assay.records.spec import LONGEST_WAIT_S, TrialSpec
from assay.run.process import pause

_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0
"""Pauses where the provider does not say how long to wait: each twice as long as the last."""
# Text, which is compiled at its first use: few runs need these, and all together take 0.7 ms.
_REFUSED = r"(?i)\b(429|529)\b|rate.?limit|too many requests|resource.{0,3}exhausted|overloaded"
_FOR_LONG = r"(?i)\bdaily\b|per.?day|billing|insufficient|credit balance"
"""What is used up for the day, or until it is paid, does not come back by waiting."""
_ASKED = (
    (r"(?i)retryDelayMs:\s*(\d{1,9})", 1),
    (r"(?i)retry.?after[\"']?\s*[:=]?\s*[\"']?(\d{1,6})\b", 1000),
    (r"(?i)(?:try again|retry|retrying) in\s+(\d{1,6}(?:\.\d{1,6})?)\s*ms\b", 1),
    (r"(?i)(?:try again|retry|retrying) in\s+(\d{1,6}(?:\.\d{1,6})?)\s*s", 1000),
    (r"(?i)(?:try again|retry|retrying) in\s+(\d{1,6}(?:\.\d{1,6})?)\s*m(?!s)", 60_000),
)
"""How agents and providers write how long to wait, and what that is in ms."""


def with_pause(failure: Failure, stderr: str) -> Failure:
    """Note on a failure that the provider refused for too many requests, and the pause it wants."""
    known = failure.retry_after_ms is not None
    if known or failure.cause is not Cause.PROVIDER or not re.search(_REFUSED, failure.message):
        return failure
    if re.search(_FOR_LONG, failure.message):
        return failure
    texts = (failure.message, stderr[-4000:])
    found = ((re.search(asked, text), factor) for text in texts for asked, factor in _ASKED)
    pauses = (float(match[1]) * factor for match, factor in found if match)
    return msgspec.structs.replace(failure, retry_after_ms=next(pauses, 0.0))


class RateLimiter:
    """Holds trials back, each provider and model for itself. All workers of a batch share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lanes: dict[tuple[str, str], _Lane] = {}
        self.interval_s = 0.0
        """Least time between the starts of two trials of the same provider and model."""
        self.longest_s = LONGEST_WAIT_S
        """Longest pause at once."""
        self.on_wait: Callable[[float, str], None] | None = None
        """Told how long trials wait, in seconds, and why."""

    def wait(self, spec: TrialSpec) -> None:
        """Return when the trial may start; raises Interrupted when the operator ends the run."""
        if not self._lanes and not self.interval_s:  # nearly always: then no lock is needed
            return
        lane = provider_of(spec)
        while (wait_s := self._take(lane)) > 0:
            pause(wait_s)

    def note(self, spec: TrialSpec, failure: Failure | None, began_s: float) -> None:
        """Learn from how a trial ended that began at this time of the monotonic clock."""
        refused = failure is not None and failure.retry_after_ms is not None
        if not refused and not self._lanes:
            return
        with self._lock:
            lane = self._lanes.setdefault(provider_of(spec), _Lane())
            if not refused:
                lane.n_refused = 0 if began_s >= lane.refused_s else lane.n_refused
                return
            assert failure is not None
            found = re.search(r"\b(429|5\d\d)\b", failure.message)
            refusal = "rate limit" if re.search(_REFUSED, failure.message) else "no answer"
            lane.status = found[1] if found else refusal
            # Trials that ran side by side are refused together: that counts once.
            if began_s >= lane.refused_s:
                lane.n_refused += 1
                lane.refused_s = time.monotonic()
            asked_s = (failure.retry_after_ms or 0) / 1000
            backoff_s = min(_FIRST_PAUSE_S * 2 ** (lane.n_refused - 1), _LONGEST_PAUSE_S)
            until_s = time.monotonic() + min(asked_s or backoff_s, self.longest_s)
            lane.refused_until_s = max(lane.refused_until_s, until_s)

    def _take(self, name: tuple[str, str]) -> float:
        """Let a trial start and return 0, or return how long it waits before it asks again."""
        with self._lock:
            lane = self._lanes.setdefault(name, _Lane())
            now_s = time.monotonic()
            refused_s = lane.refused_until_s - now_s
            wait_s = max(refused_s, lane.next_s - now_s)
            if wait_s <= 0:
                lane.next_s = now_s + self.interval_s
                return 0.0
            is_news = refused_s > 0 and lane.said_s != lane.refused_until_s
            lane.said_s = lane.refused_until_s
        if is_news and self.on_wait is not None:
            self.on_wait(refused_s, f"for the provider ({lane.status})")
        return wait_s


class _Lane(msgspec.Struct):
    """What is known of one provider and model; times are of the monotonic clock."""

    status: str = ""
    """What it answered last."""
    next_s: float = 0.0
    """The rate allows no start before."""
    refused_until_s: float = 0.0
    refused_s: float = 0.0
    """When it refused last."""
    n_refused: int = 0
    """How often it did so in a row."""
    said_s: float = 0.0
    """Which pause was announced."""


def provider_of(spec: TrialSpec) -> tuple[str, str]:
    """Return the provider and the model that a trial uses, as far as its options tell."""
    model = str(spec.agent.options.get("model") or "")
    provider, slash, name = model.partition("/")
    if slash:  # as OpenCode names its models
        return provider, name
    adapter = plugins.adapter(spec.agent)
    return adapter.provider or adapter.name, model
