"""What tokens cost, by the built-in table and by a user's own."""

import json
from pathlib import Path

import pytest
from msgspec import UNSET

from assay.adapters.prices import estimate_cost, price_table, with_cost
from assay.errors import InputError, UsageError
from assay.records.capture import Usage

MILLION = 1_000_000


def used(**tokens: int) -> Usage:
    return Usage(**tokens)


def test_classes_do_not_overlap_unless_said() -> None:
    usage = used(
        input_tokens=3 * MILLION, output_tokens=MILLION, cache_read_tokens=MILLION,
        cache_write_tokens=MILLION, reasoning_tokens=MILLION,
    )  # fmt: skip
    cost = estimate_cost("claude-sonnet-4-5", usage)
    assert cost == pytest.approx(3 * 3 + 2 * 15 + 0.3 + 3.75)
    cost = estimate_cost(
        "claude-sonnet-4-5", usage, input_includes_cache=True, output_includes_reasoning=True
    )
    assert cost == pytest.approx(1 * 3 + 15 + 0.3 + 3.75)


@pytest.mark.parametrize(
    "name",
    ["claude-sonnet-4-5-20250929", "anthropic/claude-sonnet-4-5", "claude-sonnet-4-5@20250929"],
)
def test_model_is_found_without_its_provider_and_date(name: str) -> None:
    assert estimate_cost(name, used(input_tokens=MILLION)) == pytest.approx(3)


@pytest.mark.parametrize("name", [None, "", "mock-model", "gpt-5.99", "claude-sonnet-4-55"])
def test_unknown_model_has_no_cost(name: str | None) -> None:
    assert estimate_cost(name, used(input_tokens=1)) is None
    assert with_cost(name, used(input_tokens=1)).cost_usd is UNSET


def test_nothing_counted_has_no_cost() -> None:
    assert estimate_cost("gpt-5", Usage()) is None


def test_reported_cost_is_kept() -> None:
    usage = Usage(input_tokens=1, cost_usd=7.0, cost_source="reported")
    found = with_cost("gpt-5", usage)
    assert (found.cost_usd, found.cost_source) == (7.0, "reported")
    assert found.estimated_usd == pytest.approx(1.25e-6)
    # A part that has no price leaves nothing to compare the sum with.
    both = found.plus(Usage(input_tokens=1, cost_usd=1.0, cost_source="reported"))
    assert both.cost_usd == 8.0
    assert isinstance(both.estimated_usd, float)
    assert both.estimated_usd < 0
    assert with_cost("gpt-5", used(input_tokens=MILLION)).cost_source == "estimated"


def test_cache_without_a_price_costs_what_input_costs() -> None:
    assert estimate_cost("gpt-5", used(input_tokens=0, cache_write_tokens=MILLION)) == 1.25


def test_table_has_a_date_and_positive_prices() -> None:
    table = price_table()
    assert table.as_of.startswith("20")
    assert all(price.input > 0 and price.output > price.input for price in table.models.values())


def test_users_own_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "prices.json"
    monkeypatch.setenv("ASSAY_PRICES", str(path))
    with pytest.raises(UsageError, match="No such file"):
        price_table()
    path.write_text(json.dumps({"asOf": "2027-01-01", "models": {"m": {"input": 1, "output": 2}}}))
    assert estimate_cost("m", used(output_tokens=MILLION)) == 2
    assert estimate_cost("gpt-5", used(output_tokens=MILLION)) is None
    wrong = tmp_path / "wrong.json"
    wrong.write_text('{"asOf": "x", "models": {"m": {"input": "dear", "output": 2}}}')
    monkeypatch.setenv("ASSAY_PRICES", str(wrong))
    with pytest.raises(InputError, match=r"wrong\.json.*models"):
        price_table()
