"""balance.json: how the prompts spread over their categories."""

import msgspec


class Category(msgspec.Struct, kw_only=True, frozen=True):
    """One value of the metadata key, and how many prompts bear it."""

    name: str
    count: int
    percentage: int


class BalanceAnalysis(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """Categories from the largest to the smallest, and what to do about the gaps."""

    total_cases: int
    categories: list[Category]
    underrepresented: list[str]
    suggestions: list[str]
