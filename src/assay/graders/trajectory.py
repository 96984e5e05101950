"""Built-in `tools`, `skill` and `trigger`: what the agent did, read from the trajectory."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, ClassVar

import msgspec

from assay.errors import InputError, PluginError
from assay.graders.answer import compiled
from assay.graders.python_code import PythonCode
from assay.plugin import Trial
from assay.records.capture import Grade
from assay.records.skills import SHOULD_TRIGGER, fires, loaded_from, skills_in, skills_used

type Call = dict[str, Any]


@dataclass
class Tools(PythonCode):
    """Passes when every assertion holds; the score is the share that does.

    Tool names may have wildcards (mcp__*). match is TOOL:REGEX, searched in the call's input as
    compact JSON.
    """

    name = "tools"
    code_version: ClassVar[str] = "1"  # raise this when a verdict changes
    sees = frozenset({"trajectory"})
    used: list[str] = field(default_factory=list)
    not_used: list[str] = field(default_factory=list)
    in_order: list[str] = field(default_factory=list)
    match: list[str] = field(default_factory=list)
    max_calls: int | None = None
    no_failed: bool = False

    def __post_init__(self) -> None:
        asserted = (self.used, self.not_used, self.in_order, self._matches, self.no_failed)
        if not any(asserted) and self.max_calls is None:
            msg = "tools: nothing to check"
            raise InputError(
                msg, hint="give used, not_used, in_order, match, max_calls or no_failed"
            )
        if "" in (*self.used, *self.not_used, *self.in_order):
            msg = "tools: a tool's name is empty"
            raise InputError(msg, hint="for example: -g tools:used=Read")
        if self.max_calls is not None and self.max_calls < 0:
            msg = "tools: max_calls cannot be negative"
            raise InputError(msg)

    def judge(self, trial: Trial) -> Grade:
        calls = [
            step
            for step in trial.trajectory
            if isinstance(step, dict) and step.get("type") == "tool_call"
        ]
        checks = list(self._checks(calls))
        wrong = [message for message, holds in checks if not holds]
        n_right = len(checks) - len(wrong)
        return Grade(
            pass_=not wrong,
            score=n_right / len(checks),
            reasoning="; ".join(wrong) or f"{n_right} assertions hold over {len(calls)} calls",
        )

    def _checks(self, calls: Sequence[Call]) -> Iterator[tuple[str, bool]]:
        """Yield each assertion: the message if it fails, and whether it holds."""
        for tool in self.used:
            yield f"{tool} was not used", any(_is(call, tool) for call in calls)
        for tool in self.not_used:
            yield f"{tool} was used", not any(_is(call, tool) for call in calls)
        if self.in_order:
            yield f"not in order: {' → '.join(self.in_order)}", _in_order(calls, self.in_order)
        for tool, pattern in self._matches:
            found = any(_is(call, tool) and pattern.search(_input(call)) for call in calls)
            yield f"no call of {tool} with input matching {pattern.pattern!r}", found
        if self.max_calls is not None:
            yield f"{len(calls)} calls, at most {self.max_calls}", len(calls) <= self.max_calls
        if self.no_failed:
            failed = [str(call.get("name")) for call in calls if _failed(call)]
            yield f"failed: {', '.join(failed)}", not failed

    @cached_property
    def _matches(self) -> list[tuple[str, re.Pattern[str]]]:
        pairs = []
        for text in self.match:
            tool, colon, pattern = text.partition(":")
            if not colon:
                msg = f"tools: match must be TOOL:REGEX, not {text!r}"
                raise InputError(msg)
            pairs.append((tool, compiled(pattern)))
        return pairs


@dataclass
class Skill(PythonCode):
    """Passes when the agent used the skills it should have, and none of those it should not.

    The score is the share of these that hold. Sub-agents count.
    """

    name = "skill"
    code_version: ClassVar[str] = "1"  # raise this when a verdict changes
    can_hang: ClassVar[bool] = False
    sees = frozenset({"trajectory"})
    used: list[str] = field(default_factory=list)
    not_used: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.used and not self.not_used:
            msg = "skill: nothing to check"
            raise InputError(msg, hint="give used or not_used, as in -g skill:relnotes")
        if "" in (*self.used, *self.not_used):
            msg = "skill: a skill's name is empty"
            raise InputError(msg, hint="for example: -g skill:used=relnotes")

    def judge(self, trial: Trial) -> Grade:
        used = [use.skill for use in skills_used(trial.trajectory)]
        wrong = [f"{name} was not used" for name in self.used if not _any_fits(used, name)]
        wrong += [f"{name} was used" for name in self.not_used if _any_fits(used, name)]
        n_checks = len(self.used) + len(self.not_used)
        reason = "; ".join(wrong) or f"skills used: {', '.join(used) or 'none'}"
        return Grade(pass_=not wrong, score=1 - len(wrong) / n_checks, reasoning=reason)


def _any_fits(names: Sequence[str], pattern: str) -> bool:
    return any(fnmatchcase(name, pattern) for name in names)


def _is(call: Call, tool: str) -> bool:
    return fnmatchcase(str(call.get("name", "")), tool)


def _in_order(calls: Sequence[Call], tools: Sequence[str]) -> bool:
    # A subsequence test: the one iterator goes on behind the call that matched last.
    rest = iter(calls)
    return all(any(_is(call, tool) for call in rest) for tool in tools)


def _input(call: Call) -> str:
    value = call.get("input")
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _failed(call: Call) -> bool:
    return call.get("status") in ("failed", "error") or call.get("exitCode") not in (None, 0)


@dataclass
class Trigger(PythonCode):
    """Passes when a skill was used exactly if the prompt's metadata.shouldTrigger is true.

    The outcome says whether it fired, which other skills were used, and where it was loaded from if
    that was not the agent's working folder.
    """

    name = "trigger"
    code_version: ClassVar[str] = "1"  # raise this when a verdict changes
    can_hang: ClassVar[bool] = False
    sees = frozenset({"trajectory", "output", "metadata", "cwd"})
    skill: str = ""
    marker: str = ""

    def __post_init__(self) -> None:
        if not self.skill:
            msg = "trigger: no skill is named"
            raise InputError(msg, hint="for example: -g trigger:skill=relnotes")

    def judge(self, trial: Trial) -> Grade:
        should = trial.metadata.get(SHOULD_TRIGGER)
        if not isinstance(should, bool):
            msg = f"trigger: the prompt's metadata does not say {SHOULD_TRIGGER} true or false"
            raise PluginError(msg)
        steps = trial.trajectory
        firing = [step for step in steps if fires(step, self.skill, self.marker)]
        fired = bool(firing) or (bool(self.marker) and self.marker in trial.output)
        used = dict.fromkeys(skill for step in steps for skill in skills_in(step, asked=True))
        others = [skill for skill in used if skill != self.skill]
        outcome: dict[str, Any] = {"fired": fired, "otherSkills": others}
        places = [loaded_from(step, self.skill) for step in firing]
        if place := next((p for p in places if p and _is_outside(p, trial.cwd)), None):
            outcome["loadedFrom"] = place
        return Grade(
            pass_=fired == should,
            score=float(fired == should),
            reasoning=_trigger_words(fired, should, others),
            outcome=outcome,
        )


def _is_outside(folder: str, cwd: str | None) -> bool:
    """Whether a folder is not in the agent's own; a relative path is."""
    return folder[0] in "~$" or (folder[0] == "/" and not folder.startswith(f"{cwd}/"))


def _trigger_words(fired: bool, should: bool, others: Sequence[str]) -> str:
    if fired:
        return "it fired, as it should" if should else "it fired and should not have"
    instead = f"; used instead: {', '.join(others)}" if others else ""
    return (f"it did not fire{instead}") if should else "it did not fire, which is right"
