"""Show a balance analysis to a person."""

from collections.abc import Iterator

from assay.records.balance import BalanceAnalysis

_PERCENT_PER_BLOCK = 5


def balance_lines(found: BalanceAnalysis, key: str) -> Iterator[str]:
    """Give the lines: a bar per category (one block for 5 %), then what to do."""
    yield f"{found.total_cases} prompts by {key!r}"
    if found.categories:
        yield ""
        yield "Category Distribution:"
    for each in found.categories:
        # At least one block, so that a small category is still seen.
        bar = "█" * max(1, round(each.percentage / _PERCENT_PER_BLOCK))
        yield f"  {each.name}: {each.count} ({each.percentage}%) {bar}"
    if found.underrepresented:
        yield ""
        yield f"Underrepresented: {', '.join(found.underrepresented)}"
    yield ""
    yield "Suggestions:"
    yield from (f"  - {text}" for text in found.suggestions)
