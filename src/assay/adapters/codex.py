"""The adapter for Codex CLI: `codex exec --json`, its stream and its rollout files."""

from typing import Any

from msgspec import UNSET

from assay.adapters.codex_command import codex_command
from assay.adapters.codex_failure import (
    failed_servers,
    never_started,
    turn_failure,
    waiting_failure,
)
from assay.adapters.codex_merge import Family, assign_segments, ids_of, merge_turn
from assay.adapters.codex_rollout import read_rollouts
from assay.adapters.codex_stream import CodexTurn
from assay.adapters.codex_thread import Rollout, Segment
from assay.adapters.codex_tokens import Tokens, add_tokens, subtract_tokens, take_tokens
from assay.adapters.moments import TrialClock
from assay.adapters.prices import with_cost
from assay.adapters.vendor import VendorAdapter, add_events, add_usage
from assay.records.capture import AgentInfo, Usage
from assay.records.failure import Cause, Failure
from assay.records.recording import Recording
from assay.records.trajectory import AnyStep, ToolCall
from assay.seams import Ask, Command, Reading, Watch


class CodexAdapter(VendorAdapter):
    """One process for each turn; later turns resume the thread."""

    name = "codex"
    limited_linger_s = 0.5

    def command(self, ask: Ask) -> Command:
        """Start Codex for one turn."""
        return codex_command(self._options, ask)

    def watch(self) -> Watch:
        """Follow one turn."""
        return CodexTurn(max_turns=self._options.max_turns)

    def read(self, recording: Recording) -> Reading:
        """Read the stream, and what the rollout knows besides."""
        several = len(recording.turns) > 1
        turns: list[CodexTurn] = []
        for number, turn in enumerate(recording.turns, 1):
            reader = CodexTurn(number if several else None, self._options.max_turns)
            for line in turn.lines():
                reader.feed(line)
            turns.append(reader)
        session_id = next((t.session_id for t in reversed(turns) if t.session_id), None)
        rollouts = read_rollouts(recording.kept)
        main = rollouts.pop(session_id or "", None)
        clock = TrialClock(recording)
        segments = assign_segments(turns, main, clock)
        family = Family(_descendants(rollouts, session_id), ids_of(main))
        steps: list[AnyStep] = []
        used: list[Tokens | None] = []
        for number, (reader, segment) in enumerate(zip(turns, segments, strict=True), 1):
            steps += merge_turn(reader, segment, clock, number if several else None, family)
            used.append(add_tokens([_own_tokens(turns, segments, number - 1), family.spent()]))
        model = _model(segments) or self._options.model
        usages = [_usage(tokens, model) for tokens in used]
        return Reading(
            steps=steps,
            outputs=[reader.output() for reader in turns],
            events=add_events(
                (reader.events for reader in turns), terminal=bool(turns) and turns[-1].ended
            ),
            usage=add_usage(usages),
            turn_usage=[usage or Usage() for usage in usages] if several and any(usages) else [],
            session_id=session_id,
            agent=_agent(main, model),
            failure=_failure(recording, turns, segments),
            setup=self._setup(turns, segments, main, recording.stderr),
            permission_denials=sum(_is_denied(step) for step in steps),
            provider_retries=sum(reader.retries for reader in turns),
        )

    def _setup(
        self,
        turns: list[CodexTurn],
        segments: list[Segment | None],
        main: Rollout | None,
        stderr: str,
    ) -> dict[str, Any]:
        """Say what the agent had; of MCP servers it tells only, on stderr, which failed."""
        known = [segment for segment in segments if segment is not None]
        context = known[-1].context if known else {}
        sandbox = context.get("sandbox_policy")
        setup: dict[str, Any] = {
            "model": context.get("model") or self._options.model,
            "provider": main.meta.get("model_provider") if main is not None else None,
            "reasoningEffort": context.get("effort"),
            "sandbox": sandbox.get("type") if isinstance(sandbox, dict) else sandbox,
            "approval": context.get("approval_policy"),
            "tools": list(dict.fromkeys(name for segment in known for name in segment.tools)),
            "warnings": list(dict.fromkeys(text for turn in turns for text in turn.warnings)),
        }
        if self._options.mcp and any(turn.session_id for turn in turns):
            failed = failed_servers(stderr)
            setup["mcpServers"] = [
                {"name": name, "status": "failed" if name in failed else "connected"}
                for name in self._options.mcp
            ]
        return {name: value for name, value in setup.items() if value}


def _own_tokens(
    turns: list[CodexTurn], segments: list[Segment | None], index: int
) -> Tokens | None:
    """Give what one turn used: by the rollout, else what it added to the thread's total."""
    segment = segments[index]
    if segment is not None and segment.tokens is not None:
        return segment.tokens
    total = take_tokens(turns[index].usage)
    if total is None:
        return None
    earlier = [turn for turn in turns[:index] if turn.usage is not None]
    return subtract_tokens(total, take_tokens(earlier[-1].usage) if earlier else None)


def _usage(tokens: Tokens | None, model: str | None) -> Usage | None:
    """Say it as Codex does: input includes what was cached, output includes reasoning."""
    if tokens is None:
        return None
    usage = Usage(
        input_tokens=tokens.get("input_tokens", UNSET),
        output_tokens=tokens.get("output_tokens", UNSET),
        cache_read_tokens=tokens.get("cached_input_tokens", UNSET),
        cache_write_tokens=tokens.get("cache_write_input_tokens", UNSET),
        reasoning_tokens=tokens.get("reasoning_output_tokens", UNSET),
    )
    return with_cost(model, usage, input_includes_cache=True, output_includes_reasoning=True)


def _failure(
    recording: Recording, turns: list[CodexTurn], segments: list[Segment | None]
) -> Failure | None:
    if not turns:
        return None
    last, end, segment = turns[-1], recording.turns[-1].end, segments[-1]
    if last.over_limit:
        return Failure(
            cause=Cause.AGENT_LIMIT, message=f"stopped: it began model turn {last.model_turns}"
        )
    if last.error is not None:
        return turn_failure(last.error, segment.error if segment is not None else None)
    if last.session_id is None and not last.events.total:
        return never_started(end, recording.stderr)
    if not last.ended and last.notice is not None:
        return waiting_failure(last.notice)
    return None


def _descendants(rollouts: dict[str, Rollout], root: str | None) -> dict[str, Rollout]:
    """Give the rollouts of the sub-agents of a thread, and of theirs."""
    family = {root}
    while True:
        more = {name for name, rollout in rollouts.items() if rollout.parent in family} - family
        if not more:
            return {name: rollout for name, rollout in rollouts.items() if name in family}
        family |= more


def _model(segments: list[Segment | None]) -> str | None:
    models = [segment.context.get("model") for segment in segments if segment is not None]
    return next((model for model in reversed(models) if isinstance(model, str)), None)


def _agent(main: Rollout | None, model: str | None) -> AgentInfo:
    version = main.meta.get("cli_version") if main is not None else None
    return AgentInfo(
        adapter="codex",
        version=version if isinstance(version, str) else UNSET,
        model=UNSET if model is None else model,
    )


def _is_denied(step: AnyStep) -> bool:
    return isinstance(step, ToolCall) and step.error == "declined"
