"""Sessions that agents have kept on this machine, as captures and as prompts."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET

from assay import plugins
from assay.adapters.reading import or_unset
from assay.adapters.vendor import add_usage
from assay.pipeline.extract import has_tool_errors, richness
from assay.plugin import Adapter, PastSession, PastTurn
from assay.records.capture import AnyStep, Message, Timing
from assay.records.spec import PluginRef
from assay.records.trial import Trial
from assay.run.workspace import our_secrets


def past_sessions(
    agents: Sequence[str], since_ms: float, project: Path | None
) -> Iterator[PastSession]:
    """Yield what the agents have kept since then, one at a time.

    With a project, only sessions that worked in that folder or below it.
    """
    for name in agents:
        adapter: Adapter = plugins.adapter(PluginRef(name=name))
        for session in adapter.past_sessions(since_ms):
            if session.end_ms >= since_ms and (project is None or _works_in(session, project)):
                yield session


def _works_in(session: PastSession, project: Path) -> bool:
    return session.cwd is not None and Path(session.cwd).is_relative_to(project.resolve())


def session_trial(session: PastSession) -> Trial:
    """Return a session as a captured trial, with secrets of the environment masked."""
    steps = _steps(session.turns)
    usages = [turn.usage for turn in session.turns]
    usage = add_usage(usages)
    trial = Trial(
        id=session.id,
        input=_input(session),
        output=_answer(session.turns[-1]),
        trajectory=steps,
        metadata={
            "agent": session.agent.adapter,
            "trajectoryRichness": richness(steps),
            "turnCount": len(session.turns),
            **_origin(session),
        },
        timing=Timing(
            start=session.start_ms,
            end=session.end_ms,
            first_response=steps[0].timestamp if steps else UNSET,
            total=session.end_ms - session.start_ms,
            input_tokens=usage.input_tokens if usage else UNSET,
            output_tokens=usage.output_tokens if usage else UNSET,
        ),
        tool_errors=has_tool_errors(steps),
        usage=or_unset(usage),
        turn_usage=[one for one in usages if one is not None] if None not in usages else UNSET,
        agent=session.agent,
        session_id=session.id,
        cwd=or_unset(session.cwd),
    )
    return our_secrets().mask_record(trial)


def session_prompt(session: PastSession) -> dict[str, Any]:
    """Return what the user asked in a session as the row of a prompt file."""
    metadata = {"agent": session.agent.adapter, **_origin(session)}
    return our_secrets().mask_record(
        {"id": session.id, "input": _input(session), "metadata": metadata}
    )


def _input(session: PastSession) -> str | list[str]:
    texts = [turn.text for turn in session.turns]
    return texts if len(texts) > 1 else texts[0]


def _origin(session: PastSession) -> dict[str, Any]:
    """Where the session comes from, and the state of the repository as far as it is known."""
    known = {
        "sessionFile": str(session.path),
        "project": session.cwd,
        "branch": session.branch,
        "commit": session.commit,
    }
    return {name: value for name, value in known.items() if value}


def _steps(turns: Sequence[PastTurn]) -> list[AnyStep]:
    steps = [step for turn in turns for step in turn.steps]
    if len(turns) > 1:
        return steps
    return [msgspec.structs.replace(step, turn=UNSET) for step in steps]


def _answer(turn: PastTurn) -> str:
    said = [step.content for step in turn.steps if isinstance(step, Message) and not step.parent]
    return said[-1] if said else ""
