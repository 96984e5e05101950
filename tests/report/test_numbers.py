"""Numbers are printed as JavaScript prints them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.report.text import fixed, js_number


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1"),
        (-0.0, "0"),
        (0.1, "0.1"),
        (1e3, "1000"),
        (1.5e10, "15000000000"),
        (1e20, "100000000000000000000"),
        (123456789012345680000.0, "123456789012345680000"),
        (1e21, "1e+21"),
        (1.5e300, "1.5e+300"),
        (0.00001, "0.00001"),
        (1e-6, "0.000001"),
        (1e-7, "1e-7"),
        (-2.5e-9, "-2.5e-9"),
        (12345678901234567890, "12345678901234567890"),
    ],
)
def test_known_numbers(value: float, text: str):
    """Recorded from Bun's JSON.stringify, but for the last: we lose no digit of a whole number."""
    assert js_number(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_the_text_reads_back_as_the_same_number(value: float):
    assert float(js_number(value)) == value


@pytest.mark.parametrize(
    ("value", "places", "text"),
    [
        (0.0625, 3, "0.063"),
        (0.1875, 3, "0.188"),
        (1.005, 2, "1.00"),
        (0.75, 3, "0.750"),
        (1, 3, "1.000"),
        (33.35, 1, "33.4"),
        (0.5, 0, "1"),
    ],
)
def test_ties_of_the_exact_value_round_up(value: float, places: int, text: str):
    assert fixed(value, places) == text


@given(st.floats(0, 1))
def test_rounding_is_never_off_by_more_than_half_a_unit(value: float):
    assert math.isclose(float(fixed(value, 3)), value, abs_tol=0.0005000001)
