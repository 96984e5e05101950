"""The adapter for Gemini CLI: `gemini -p`, its stream of JSON events and its session files."""

from typing import Any

from msgspec import UNSET

from assay.adapters.gemini_calls import is_denied
from assay.adapters.gemini_command import gemini_command
from assay.adapters.gemini_failure import count_retries, failure_of_turn, server_states
from assay.adapters.gemini_merge import Merge, assign_segments
from assay.adapters.gemini_session import Segment, Session, Tokens, read_sessions
from assay.adapters.gemini_stream import GeminiTurn, Use
from assay.adapters.moments import TrialClock
from assay.adapters.prices import with_cost
from assay.adapters.vendor import VendorAdapter, add_events, add_usage
from assay.records.capture import AgentInfo, Usage
from assay.records.recording import Recording
from assay.records.trajectory import AnyStep
from assay.seams import Ask, Command, Reading, Watch


class GeminiAdapter(VendorAdapter):
    """One process for each turn; later turns resume the session of the first."""

    name = "gemini"

    def command(self, ask: Ask) -> Command:
        """Run one prompt to its end, with every permission given."""
        return gemini_command(self._options, ask)

    def watch(self) -> Watch:
        """Follow one turn."""
        return GeminiTurn()

    def read(self, recording: Recording) -> Reading:
        """Read the stream, and what the session file knows besides."""
        several = len(recording.turns) > 1
        turns = [_read_turn(turn.lines()) for turn in recording.turns]
        session_id = next((turn.session_id for turn in reversed(turns) if turn.session_id), None)
        sessions = read_sessions(recording.kept)
        main = sessions.pop(session_id or "", None)
        clock = TrialClock(recording)
        segments = assign_segments(turns, main, clock)
        children = {n: session for n, session in sessions.items() if session.kind == "subagent"}
        merge = Merge(clock, children)
        steps: list[AnyStep] = []
        for number, (turn, segment) in enumerate(zip(turns, segments, strict=True), 1):
            steps += merge.steps(turn, segment, number if several else None)
        usages = [_usage(*pair) for pair in zip(turns, segments, strict=True)]
        failure = None
        if turns:
            failure = failure_of_turn(turns[-1], recording.turns[-1].end, recording.stderr)
        uses = [part for turn in turns for part in turn.parts if isinstance(part, Use)]
        return Reading(
            steps=steps,
            outputs=[turn.output() for turn in turns],
            events=add_events(
                (turn.events for turn in turns), terminal=bool(turns) and turns[-1].ended
            ),
            usage=add_usage(usages),
            turn_usage=[usage or Usage() for usage in usages] if several and any(usages) else [],
            session_id=session_id,
            agent=AgentInfo(adapter="gemini", model=_model(turns, main) or UNSET),
            failure=failure,
            setup=self._setup(turns, recording.stderr),
            permission_denials=sum(map(is_denied, uses)),
            provider_retries=count_retries(recording.stderr),
        )

    def _setup(self, turns: list[GeminiTurn], stderr: str) -> dict[str, Any] | None:
        """Say what the agent was given, and which MCP servers came of it."""
        asked = next((turn.model for turn in turns if turn.model), None)
        if asked is None:
            return None
        setup: dict[str, Any] = {"model": asked, "approvalMode": self._approval()}
        if self._options.mcp:
            states = server_states(self._options.mcp, turns, stderr)
            setup["mcpServers"] = [{"name": n, "status": state} for n, state in states.items()]
        warnings = [text for turn in turns for severity, text in turn.errors]
        return setup | ({"warnings": list(dict.fromkeys(warnings))} if warnings else {})

    def _approval(self) -> str:
        args = self._options.args
        for index, arg in enumerate(args):
            if arg == "--approval-mode" and index + 1 < len(args):
                return args[index + 1]
            if arg.startswith("--approval-mode="):
                return arg.split("=", 1)[1]
        return "yolo"


def _read_turn(lines: Any) -> GeminiTurn:
    turn = GeminiTurn()
    for line in lines:
        turn.feed(line)
    turn.settle()
    return turn


def _usage(turn: GeminiTurn, segment: Segment | None) -> Usage | None:
    """Give what one process used: its result says it, else the session's answers do."""
    if turn.result is not None and turn.result.stats:
        stats = turn.result.stats
        models = stats.get("models")
        if isinstance(models, dict) and models:
            shares = [_of_stats(share, name) for name, share in models.items()]
            return add_usage(shares)
        return _of_stats(stats, turn.model)
    tokens = segment.tokens if segment is not None else None
    if tokens is None:
        return None
    return _counted(tokens, tokens.get("thoughts", 0), turn.model)


def _of_stats(stats: Any, model: str | None) -> Usage | None:
    if not isinstance(stats, dict) or not stats.get("total_tokens", stats.get("input_tokens")):
        return None  # an API error: nothing was answered
    names = {"input": "input_tokens", "output": "output_tokens", "cached": "cached"}
    tokens = {name: n for name, key in names.items() if isinstance(n := stats.get(key), int)}
    total = stats.get("total_tokens")
    known = tokens.get("input", 0) + tokens.get("output", 0)
    thought = total - known if isinstance(total, int) else 0
    return _counted(tokens, max(thought, 0), model)


def _counted(tokens: Tokens, thought: int, model: str | None) -> Usage:
    """Say it as Gemini does: input includes what was cached, output excludes thoughts."""
    usage = Usage(
        input_tokens=tokens.get("input", UNSET),
        output_tokens=tokens.get("output", UNSET),
        cache_read_tokens=tokens.get("cached", UNSET),
        reasoning_tokens=thought,
    )
    return with_cost(model, usage, input_includes_cache=True)


def _model(turns: list[GeminiTurn], main: Session | None) -> str | None:
    """Name the model that answered; what was asked for may be "auto"."""
    answers = [answer for segment in main.segments for answer in segment.answers] if main else []
    named = [answer.model for answer in answers if answer.model]
    if named:
        return named[-1]
    asked = next((turn.model for turn in reversed(turns) if turn.model), None)
    if asked not in (None, "auto"):
        return asked
    shares: dict[str, int] = {}
    for turn in turns:
        models = turn.result.stats.get("models") if turn.result is not None else None
        for name, share in models.items() if isinstance(models, dict) else ():
            total = share.get("total_tokens") if isinstance(share, dict) else None
            shares[name] = shares.get(name, 0) + (total if isinstance(total, int) else 0)
    return max(shares, key=lambda name: shares[name]) if shares else asked
