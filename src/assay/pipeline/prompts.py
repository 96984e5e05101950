"""Read and filter prompts, and plan their trials."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from assay import plugins
from assay.errors import AssayError, CannotRunError, InputError, PluginError, RequestError
from assay.plugin import PromptRow
from assay.records.capture import Identity
from assay.records.rows import Place, decode_line
from assay.records.spec import (
    OWN_IMAGE,
    Limits,
    PluginRef,
    Prompt,
    Surroundings,
    TrialSpec,
    check_prompt,
    row_fields,
)
from assay.records.text import counted_noun
from assay.records.trial import Allocation
from assay.run import confinement


def read_prompts(ref: PluginRef) -> list[PromptRow]:
    """Return the prompts of a benchmark; a prompt file is one."""
    try:
        given = list(plugins.benchmark(ref).prompts())
    except AssayError:
        raise
    except Exception as error:  # a plugin may raise anything
        msg = f"benchmark {ref.name!r} cannot give its prompts: {type(error).__name__}: {error}"
        raise PluginError(msg) from error
    rows: list[PromptRow] = []
    places: dict[str, str] = {}
    for number, row in enumerate(given, 1):
        place = f"benchmark {ref.name}, prompt {number}"
        prompt, extra = prompt_row(row, place)
        check_prompt(prompt, place, places)
        rows.append((prompt, {**row_fields(prompt), **extra}))
    return rows


def prompt_row(row: Any, place: str) -> PromptRow:
    """Return what a benchmark gave as a pair; more fields for the rows may be left out."""
    match row:
        case Prompt():
            return row, {}
        case (Prompt() as prompt, dict(extra)):
            return prompt, extra
    msg = f"{place}: expected a Prompt, or a pair of a Prompt and a dict, not {row!r:.80}"
    raise PluginError(msg)


def choose(
    rows: Sequence[PromptRow],
    filters: Sequence[str],
    limit: int | None,
    where: object,
    noun: str = "prompt",
    say: Callable[[str], object] = lambda text: None,
) -> list[PromptRow]:
    """Keep prompts that fit the filters (see fits_all); refuse filters that leave none.

    where and noun say in the error where the prompts come from, and what they are. say is told of
    patterns that choose none of those that are kept.
    """
    kept = [row for row in rows if fits_all(row[0], filters)]
    if rows and not kept:
        msg = f"{where}: no {noun}s that match the filter {' and '.join(map(repr, filters))}"
        ids = ", ".join(prompt.id for prompt, _ in rows[:3])
        raise InputError(msg, hint=f"it has {counted_noun(len(rows), noun)}, such as {ids}")
    if idle := [pattern for text in filters for pattern in _idle(text, kept)]:
        say(f"Warning: no {noun} is chosen by {', '.join(map(repr, idle))} of the filter")
    return kept if limit is None else kept[:limit]


def fits_all(prompt: Prompt, filters: Iterable[str]) -> bool:
    """Whether a prompt fits the filters: one of those for ids or for a key, and all others.

    All that leave something out hold, and all for tags, of which a prompt may have several.
    """
    groups: dict[str, list[str]] = {}
    for text in filters:
        key, equals, _ = text.partition("=")
        is_alone = key.endswith("!") or text.startswith("!") or (equals and key == "tags")
        groups.setdefault(text if is_alone else key if equals else "", []).append(text)
    return all(any(fits(prompt, text) for text in group) for group in groups.values())


def fits(prompt: Prompt, text: str) -> bool:
    """Whether a prompt fits one filter: ID, !ID, KEY=VALUE or KEY!=VALUE.

    ID and VALUE are patterns, of which several may stand there, separated by commas: one of them
    has to match or, where there is a !, none. KEY is one of metadata, or tags.
    """
    key, equals, patterns = text.partition("=")
    is_negated = key.endswith("!") if equals else text.startswith("!")
    patterns = patterns if equals else text.removeprefix("!")
    found = _found(prompt, key.removesuffix("!") if equals else "")
    # The whole first: an id or a value may have a comma in it.
    wanted = [patterns, *_parts(patterns)]
    matches = any(fnmatchcase(one, pattern) for pattern in wanted for one in found)
    return matches != is_negated


def _idle(text: str, kept: Sequence[PromptRow]) -> list[str]:
    """Return the patterns of a filter that choose none of the prompts that were kept."""
    key, equals, patterns = text.partition("=")
    if key.endswith("!") or text.startswith("!"):
        return []
    patterns = patterns if equals else text
    found = {one for prompt, _ in kept for one in _found(prompt, key if equals else "")}
    if any(fnmatchcase(one, patterns) for one in found):
        return []
    return [part for part in _parts(patterns) if not any(fnmatchcase(one, part) for one in found)]


def _parts(patterns: str) -> list[str]:
    return [part for part in patterns.split(",") if part]


def _found(prompt: Prompt, key: str) -> list[str]:
    """Return what a filter looks at: the values of a key, or the id."""
    if not key:
        return [prompt.id]
    values = [prompt.metadata.get(key), *([prompt.tags] if key == "tags" else ())]
    return [one for value in values for one in _values(value)]


def matching_rows(
    lines: Iterator[tuple[Place, bytes]], filters: Sequence[str]
) -> Iterator[tuple[Place, bytes]]:
    """Return the rows of results whose prompts fit every filter."""

    def row_fits(row: tuple[Place, bytes]) -> bool:
        view = decode_line(_FILTERED, *row)
        tags = view.tags if isinstance(view.tags, str | list) else []
        prompt = Prompt(id=str(view.id), input="", metadata=view.metadata or {}, tags=tags)
        return fits_all(prompt, filters)

    return filter(row_fits, lines) if filters else lines


class _FilteredView(msgspec.Struct, gc=False):
    id: Any = ""
    metadata: dict[str, Any] | None = None
    tags: Any = None


_FILTERED = msgspec.json.Decoder(_FilteredView)


def _values(value: Any) -> Iterator[str]:
    for item in value if isinstance(value, list) else [value]:
        if item is not None:
            # As in JSON, which is how the user wrote it.
            yield ("true" if item else "false") if isinstance(item, bool) else str(item)


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """What all trials of a run share."""

    agent: PluginRef
    benchmark: PluginRef = PluginRef(name="prompts")
    limits: Limits
    surroundings: Surroundings
    run_token: str
    identity: Identity | None = None
    graders: tuple[PluginRef, ...] = ()
    """Those that the row of a prompt names, besides those of the run."""


def make_specs(
    rows: Iterable[PromptRow],
    names: dict[str, str],
    setting: Setting,
    k: int | None = None,
    setting_of: Callable[[Prompt], Setting] | None = None,
    allocation: Mapping[str, Allocation] | None = None,
    skipped: dict[str, str] | None = None,
) -> list[TrialSpec]:
    """Return the trials in order; with k, that many of each prompt, or what is allocated to it.

    setting_of gives the setting of a prompt whose row asks for more (see RowSettings). What cannot
    be run is left out if there is a place to say so, skipped: why, by the prompt's id.
    """
    allotted = {id_: given.trials for id_, given in (allocation or {}).items()}
    specs = [
        spec
        for prompt, extra in rows
        for spec in _trials_of(
            prompt,
            extra,
            names[prompt.id],
            setting_of(prompt) if setting_of else setting,
            allotted.get(prompt.id, k),
        )
    ]
    return _fitted(specs, setting, skipped)


def _fitted(
    specs: list[TrialSpec], setting: Setting, skipped: dict[str, str] | None
) -> list[TrialSpec]:
    """Let the benchmark set the limits of its trials; refuse those that cannot be run here."""
    benchmark = plugins.benchmark(setting.benchmark)
    try:
        specs = list(benchmark.fit_trials(specs))
    except CannotRunError as error:
        left = [spec for spec in specs if spec.prompt.id not in error.why]
        if skipped is None or not left:
            raise
        skipped.update(error.why)
        specs = list(benchmark.fit_trials(left))
    checked = {(setting.limits.memory_bytes, setting.limits.cpus)}
    for spec in specs:
        limits = spec.limits
        if (limits.memory_bytes, limits.cpus) not in checked:
            check_confinement(spec.surroundings, limits)
            checked.add((limits.memory_bytes, limits.cpus))
    return specs


def image_of_tasks(benchmark: PluginRef, image: str, *, is_open: bool) -> str:
    """Return the image for agents: of each task its own, where tasks have them and nobody says
    otherwise."""
    has_images = plugins.benchmark(benchmark).has_images
    if image == OWN_IMAGE and not has_images:
        msg = f"--container {OWN_IMAGE} is for benchmarks whose tasks have images."
        raise RequestError(msg, hint="Name an image, or use --benchmark harbor:PATH.")
    return OWN_IMAGE if has_images and is_open and not image else image


def check_confinement(surroundings: Surroundings, limits: Limits) -> None:
    """Refuse, before anything runs, a sandbox, container or limit that does not work here."""
    confinement.check_confinement(surroundings, limits)


def _trials_of(
    prompt: Prompt, extra: dict[str, Any], name: str, setting: Setting, k: int | None
) -> Iterator[TrialSpec]:
    limits = setting.limits
    if prompt.timeout is not None:
        limits = msgspec.structs.replace(limits, turn_s=prompt.timeout / 1000)
    for number in range(1, (k or 1) + 1):
        yield TrialSpec(
            prompt=prompt,
            agent=setting.agent,
            benchmark=setting.benchmark,
            limits=limits,
            surroundings=setting.surroundings,
            folder=name if k is None else f"{name}-trial-{number}",
            number=number,
            run_token=setting.run_token,
            identity=setting.identity,
            extra=extra,
            graders=setting.graders,
        )
