"""How prompts spread over categories."""

import math
from collections.abc import Iterable
from typing import Any

import msgspec

from assay.records.reports import BalanceAnalysis, Category
from assay.records.spec import Prompt

UNCATEGORIZED = "(uncategorized)"
_FEW = 3
_SMALL_SET = 20
_HALF_PERCENT = 50


def category_of(prompt: Prompt, key: str) -> str:
    """Return the category as text; a list is one category, its parts joined."""
    value = prompt.metadata.get(key)
    return UNCATEGORIZED if value is None else _as_text(value)


def analyse(names: Iterable[str], threshold: float) -> BalanceAnalysis:
    """Count categories. Those under threshold % of an even share are underrepresented."""
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    total = sum(counts.values())
    categories = [
        # round() would round half to even
        Category(name=name, count=count, percentage=math.floor(count / total * 100 + 0.5))
        for name, count in sorted(counts.items(), key=lambda item: -item[1])
    ]
    floor = 100 / len(categories) * threshold / 100 if categories else 0.0
    scarce = [each.name for each in categories if each.percentage < floor]
    return BalanceAnalysis(
        total_cases=total,
        categories=categories,
        underrepresented=scarce,
        suggestions=_suggest(total, categories, scarce),
    )


def _suggest(total: int, categories: list[Category], scarce: list[str]) -> list[str]:
    suggestions: list[str] = []
    if scarce:
        suggestions.append(f"Consider adding more test cases for: {', '.join(scarce)}")
    most = next((each for each in categories if each.percentage > _HALF_PERCENT), None)
    if most is not None:
        suggestions.append(
            f"Category '{most.name}' has {most.percentage}% of cases - consider diversifying"
        )
    few = [each.name for each in categories if each.count < _FEW]
    if few:
        suggestions.append(f"Categories with < {_FEW} cases may not be reliable: {', '.join(few)}")
    if total < _SMALL_SET:
        suggestions.append(
            f"Consider expanding test set (currently {total} cases) "
            "for more statistical significance"
        )
    return suggestions or ["Test set appears well-balanced"]


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(item, str | int | float) for item in value):
        return ",".join(_as_text(item) for item in value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return msgspec.json.encode(value).decode()
