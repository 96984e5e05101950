"""Make a trial of each prompt: the unit of work, with names that no other trial has."""

import hashlib
import re
from collections.abc import Iterable

import msgspec

from assay.prompts.prompt_file import PromptRow
from assay.records.trial import Limits, PluginRef, Surroundings, TrialSpec

_UNSAFE = re.compile(r'[<>:"/\\|?*\x00-\x1f\x7f]')
_LONGEST = 120


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """What all trials of a run share."""

    agent: PluginRef
    benchmark: PluginRef = PluginRef(name="prompts")
    limits: Limits
    surroundings: Surroundings
    run_token: str


def plan(
    rows: Iterable[PromptRow], names: dict[str, str], setting: Setting, k: int | None = None
) -> list[TrialSpec]:
    """Give the trials in order; with k, that many of each prompt."""
    return [
        TrialSpec(
            prompt=prompt,
            agent=setting.agent,
            benchmark=setting.benchmark,
            limits=_limits(setting.limits, prompt.timeout),
            surroundings=setting.surroundings,
            folder=names[prompt.id] if k is None else f"{names[prompt.id]}-trial-{number}",
            number=number,
            run_token=setting.run_token,
            extra=extra,
        )
        for prompt, extra in rows
        for number in range(1, (k or 1) + 1)
    ]


def folder_names(ids: Iterable[str]) -> dict[str, str]:
    """Give each prompt id a folder name of its own; ids that would collide get a hash behind."""
    plain = {prompt_id: _UNSAFE.sub("_", prompt_id) for prompt_id in ids}
    counts: dict[str, int] = {}
    for name in plain.values():
        counts[name] = counts.get(name, 0) + 1
    return {
        prompt_id: f"prompt-{name}"
        if counts[name] == 1 and len(name.encode()) <= _LONGEST
        else f"prompt-{_cut(name)}-{hashlib.sha256(prompt_id.encode()).hexdigest()[:10]}"
        for prompt_id, name in plain.items()
    }


def _limits(limits: Limits, timeout_ms: float | None) -> Limits:
    if timeout_ms is None:
        return limits
    return msgspec.structs.replace(limits, turn_s=timeout_ms / 1000)


def _cut(name: str) -> str:
    return name.encode()[: _LONGEST - 11].decode(errors="ignore")
