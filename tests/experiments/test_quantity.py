"""Values with units: exact conversion, and refusals that name what fits."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.quantity import (
    COUNT,
    MILLISECONDS,
    SECONDS,
    TOKENS_PER_SECOND_PER_CARD,
    Op,
    Unit,
    format_quantity,
    parse_limit,
    parse_quantity,
)


@pytest.mark.parametrize(
    ("text", "unit", "expected"),
    [
        ("20 ms", MILLISECONDS, 20.0),
        ("20ms", MILLISECONDS, 20.0),
        ("0.02 s", MILLISECONDS, 20.0),
        ("0.0201 s", MILLISECONDS, 20.1),
        ("1500 us", MILLISECONDS, 1.5),
        ("500 ms", SECONDS, 0.5),
        ("1.5 min", SECONDS, 90.0),
        ("2e3 ms", SECONDS, 2.0),
        ("230", TOKENS_PER_SECOND_PER_CARD, 230.0),
        ("230 tok/s/card", TOKENS_PER_SECOND_PER_CARD, 230.0),
        ("0", COUNT, 0.0),
    ],
)
def test_quantity_is_converted_exactly(text: str, unit: Unit, expected: float) -> None:
    """The value in the canonical unit is the nearest float to the decimal product."""
    assert parse_quantity(text, unit) == expected


@pytest.mark.parametrize(
    ("text", "unit", "message"),
    [
        ("20", MILLISECONDS, "'20' needs a unit: ms, s or us"),
        ("20 kg", MILLISECONDS, "unit 'kg' does not fit here; allowed: ms, s or us"),
        ("20 MS", MILLISECONDS, "unit 'MS' does not fit here; allowed: ms, s or us"),
        ("fast", MILLISECONDS, "'fast' is not a number with a unit, such as '20 ms'"),
        ("1,5 ms", MILLISECONDS, "'1,5 ms' is not a number with a unit, such as '20 ms'"),
        ("1e999 ms", MILLISECONDS, "1e999 is not a quantity of anything here"),
        ("20 ms please", MILLISECONDS, "'20 ms please' is not a number with a unit, such as '20 ms'"),
        ("", SECONDS, "'' is not a number with a unit, such as '20 s'"),
        ("nan", COUNT, "'nan' is not a number, such as '0'"),
        ("3 ms", COUNT, "unit 'ms' does not fit here; allowed: no unit"),
        ("9" * 70, COUNT, f"'{'9' * 60}' is not a number, such as '0'"),
    ],
)
def test_misfit_is_refused_with_what_fits(text: str, unit: Unit, message: str) -> None:
    """A wrong or absent unit is refused with the units that fit."""
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the whole message is compared
        parse_quantity(text, unit)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("text", "expected"),
    [("< 20 ms", (Op.LESS, 20.0)), ("<=20ms", (Op.AT_MOST, 20.0)), (" >= 0.5 s ", (Op.AT_LEAST, 500.0))],
)
def test_limit_has_a_comparison_and_a_value(text: str, expected: tuple[Op, float]) -> None:
    """A limit reads as its comparison and its value in the canonical unit."""
    assert parse_limit(text, MILLISECONDS) == expected


@pytest.mark.parametrize("text", ["20 ms", "=< 20 ms", "= 20 ms", "≤ 20 ms", "=> 20 ms", "!= 20 ms"])
def test_unknown_comparison_is_refused(text: str) -> None:
    """Only < <= > >= == are comparisons; others are refused, not guessed."""
    with pytest.raises(ValueError, match="a limit starts with one of < <= > >= =="):
        parse_limit(text, MILLISECONDS)


@settings(deadline=None)
@given(st.floats(min_value=0, max_value=1e9, allow_nan=False))
def test_formatted_quantity_reads_back(value: float) -> None:
    """What is shown is what would be read: formatting loses nothing."""
    assert parse_quantity(format_quantity(value, MILLISECONDS), MILLISECONDS) == value
