"""Values with a unit, as a person writes them: "20 ms", "0.5 s", "< 20 ms", "> 230".

Everything inside the project is in the canonical unit of its metric; the conversion is exact in decimal and
happens here only. A unit that does not fit is refused with the units that do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum


@dataclass(frozen=True, kw_only=True)
class Unit:
    """A canonical unit, the accepted spellings with their factor to it, and whether it may be left out."""

    symbol: str
    factors: Mapping[str, Decimal]
    optional: bool = False

    @property
    def allowed(self) -> str:
        """For messages: "ms, s or us"."""
        names = sorted(self.factors)
        return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}" if names else "no unit"


def _unit(symbol: str, *, optional: bool = False, **factors: str) -> Unit:
    return Unit(symbol=symbol, factors={name: Decimal(factor) for name, factor in factors.items()}, optional=optional)


MILLISECONDS = _unit("ms", us="0.001", ms="1", s="1000")
SECONDS = _unit("s", ms="0.001", s="1", min="60")
TOKENS_PER_SECOND_PER_CARD = Unit(
    symbol="tok/s/card",
    factors={"tok/s/card": Decimal(1), "tokens/s/card": Decimal(1)},
    optional=True,
)
TOKENS_PER_SECOND = Unit(symbol="tok/s", factors={"tok/s": Decimal(1), "tokens/s": Decimal(1)}, optional=True)
REQUESTS_PER_SECOND = Unit(symbol="req/s", factors={"req/s": Decimal(1)}, optional=True)
COUNT = Unit(symbol="", factors={}, optional=True)


class Op(StrEnum):
    """The comparisons of a limit. Strict and not strict are different things: the field's limit is strict."""

    LESS = "<"
    AT_MOST = "<="
    MORE = ">"
    AT_LEAST = ">="
    EXACTLY = "=="


LARGEST = Decimal("1e18")
_NUMBER = r"[-+]?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,3})?"
_QUANTITY = re.compile(rf"({_NUMBER})\s*([A-Za-zµ%]\S*)?")
_BOUND = re.compile(r"(<=|>=|==|=<|=>|=|<|>|≤|≥)?\s*(.*)", re.DOTALL)


def parse_quantity(text: str, unit: Unit) -> float:
    """ "20 ms" in the canonical unit. ValueError says what would have been accepted."""
    found = _QUANTITY.fullmatch(text.strip())
    if not found or len(text) > 60:
        raise ValueError(f"{text.strip()[:60]!r} is not a number{_with_unit(unit)}, such as {_example(unit)!r}")
    number, name = Decimal(found[1]), found[2]
    if abs(number) > LARGEST:
        raise ValueError(f"{found[1]} is not a quantity of anything here")
    if name is None:
        if not unit.optional:
            raise ValueError(f"{found[1]!r} needs a unit: {unit.allowed}")
        return float(number)
    if name not in unit.factors:
        raise ValueError(f"unit {name!r} does not fit here; allowed: {unit.allowed}")
    return float(number * unit.factors[name])


def parse_limit(text: str, unit: Unit) -> tuple[Op, float]:
    """ "< 20 ms" as the comparison and the limit in the canonical unit."""
    found = _BOUND.fullmatch(text.strip())
    spelling = found[1] if found else None
    if found is None or spelling not in set(Op):
        hint = f"; {spelling!r} is not one of them" if spelling else ""
        raise ValueError(f"a limit starts with one of < <= > >= =={hint}, as in '< {_example(unit)}'")
    return Op(spelling), parse_quantity(found[2], unit)


def format_quantity(value: float, unit: Unit) -> str:
    """ "20 ms": the shortest text that reads back as the same value."""
    number = f"{value:.0f}" if value == int(value) and abs(value) < 1e15 else repr(value)
    return f"{number} {unit.symbol}".strip()


def _with_unit(unit: Unit) -> str:
    return " with a unit" if unit.factors and not unit.optional else ""


def _example(unit: Unit) -> str:
    return f"20 {unit.symbol}" if not unit.optional else "230" if unit.factors else "0"
