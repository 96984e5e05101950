"""What is said about prompts that stood in a file of another format, or have unknown fields."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import Any

import msgspec

from assay.plugin import PromptRow
from assay.records.cases.rows import Imported
from assay.records.spec import ROW_FIELDS, Prompt
from assay.records.text import counted_noun

_MOST_LINES = 12
_FIELDS = Prompt.__struct_encode_fields__
_MEANT = {
    "prompt": "input",
    "question": "input",
    "query": "input",
    "expected": 'hint" or "expect',
    "expects": "expect",
    "expected_output": "hint",
    "answer": "hint",
    "assert": "expect",
    "assertions": "expect",
    "grader": "graders",
    "tag": "tags",
    "file": "files",
    "template": "workspace",
    "timeout_ms": "timeout",
}
"""Fields that others have where a prompt has another one."""
_OF_RESULTS = frozenset(
    ("output", "trajectory", "score", "grades", "identity", "specHash", "imported")
)


def prompt_notes(rows: Sequence[PromptRow], source: str, *, is_open: bool = False) -> Iterator[str]:
    """Yield what is to be said about the prompts of a run before it begins.

    is_open: nobody judges what they state.
    """
    n_open = sum(len(prompt.statements) for prompt, _ in rows) if is_open else 0
    if n_open:
        are = "is" if n_open == 1 else "are"
        yield (
            f"{source}: {counted_noun(n_open, 'statement')} {are} left open (judge:agent=none): a "
            "trial may pass without them."
        )
    yield from _unknown_fields([extra for _, extra in rows], source)
    imported = [
        (prompt, msgspec.convert(extra["imported"], Imported))
        for prompt, extra in rows
        if isinstance(extra.get("imported"), dict)
        and isinstance(extra["imported"].get("format"), str)
    ]
    if imported:
        yield from _imported_words(imported, source, is_open=is_open)


def _unknown_fields(rows: Iterable[dict[str, Any]], source: str) -> Iterator[str]:
    """Name the fields that look like one of a prompt; nobody reads them."""
    counts = Counter(name for row in rows for name in row if name not in ROW_FIELDS)
    if any(name in counts for name in ("output", "trajectory")):
        return  # results that are run again
    for name, n in counts.items():
        if meant := _likely_field(name):
            yield (
                f'{source}: "{name}" of {counted_noun(n, "prompt")} is not a field of a prompt and '
                f'is not used. Did you mean "{meant}"?'
            )


def _likely_field(name: str) -> str:
    if name in _FIELDS or name in _OF_RESULTS:
        return ""
    close = get_close_matches(name, _FIELDS, n=1, cutoff=0.75)
    return _MEANT.get(name.lower()) or (close[0] if close else "")


def _imported_words(
    found: list[tuple[Prompt, Imported]], source: str, *, is_open: bool
) -> Iterator[str]:
    checked = {text: became for _, one in found for text, became in one.checked.items()}
    n_checked = sum(len(one.checked) for _, one in found)
    n_judged = sum(len(prompt.statements) for prompt, _ in found)
    unmapped: dict[str, list[str]] = {}
    for prompt, one in found:
        for what in one.unmapped:
            unmapped.setdefault(what, []).append(prompt.id)
    judged = "left open" if is_open else "put to a judge"
    parts = [f"{n_checked} checked by graders", f"{n_judged} {judged}"]
    parts.append(f"{sum(map(len, unmapped.values()))} not mapped")
    if not (n_checked or n_judged or unmapped):
        return
    yield (
        f"{source}: {counted_noun(len(found), 'prompt')} of the format {found[0][1].format}; "
        f"{', '.join(parts)}."
    )
    # All commands are shown: they are about to be run.
    shown = dict([*checked.items()][:_MOST_LINES])
    shown |= {text: became for text, became in checked.items() if became.startswith("command:")}
    for text, became in shown.items():
        yield f"  {text} → {became}"
    if len(checked) > len(shown):
        yield f"  and {len(checked) - len(shown)} more, which stand in each row as imported.checked"
    for what, ids in [*unmapped.items()][:_MOST_LINES]:
        more = f" and {len(ids) - 1} more" if len(ids) > 1 else ""
        yield f"  not mapped, {ids[0]}{more}: {what}"
    if len(unmapped) > _MOST_LINES:
        left = len(unmapped) - _MOST_LINES
        yield f"  and {left} more not mapped, which stand in each row as imported.unmapped"
