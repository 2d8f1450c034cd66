"""What the operator allows, as `state.yaml` says it, and whether a trial may start under it. Pure.

Anything that is not clearly an order to go on means pause. `by` has to be the last key: a file that was cut off while
it was written has lost it, and is recognised by that.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated

from pydantic import AwareDatetime, BeforeValidator, Field

from experiments.document import START, Document, parse_document
from experiments.knob import Cost
from experiments.scalar import shown
from experiments.schema import Strict, validate

SHORTEST_PREFIX = 8


class Mode(StrEnum):
    RUN = "run"
    PAUSE = "pause"  # finish what runs, start nothing
    DRAIN = "drain"  # pause, then exit
    STOP = "stop"  # cancel the running stage safely


_DIGEST = re.compile(r"[0-9a-f]{8,64}")


def _digest(value: object) -> str:
    # A digest that happens to be all digits was read as a number; its text is that number.
    is_number = isinstance(value, int) and not isinstance(value, bool)
    text = str(value) if is_number else value
    if not isinstance(text, str) or not _DIGEST.fullmatch(text):
        raise ValueError(f"must be a card digest, or its first 8 or more digits, in quotes (got {shown(value)})")
    return text


def _instant(value: object) -> datetime | None:
    if value is None or isinstance(value, datetime):
        return value
    try:
        instant = datetime.fromisoformat(value) if isinstance(value, str) else None
        if instant is not None and instant.tzinfo is not None:
            instant.astimezone(UTC)  # the last hours of the year 9999 exist in some zones only
    except (ValueError, OverflowError):
        instant = None
    if instant is None or instant.tzinfo is None:
        raise ValueError(f"must be a time with its zone, as in 2026-12-01T07:00:00+08:00 (got {shown(value)})")
    return instant


# A whole card digest, or the beginning of one.
Approval = Annotated[str, BeforeValidator(_digest)]


class Only(Strict):
    """Run just this card, then pause: its name (`c03-concurrency-90`), its number (`c03`), or its digest."""

    card: str = Field(min_length=1, max_length=100)

    def names(self, card_name: str | None, card_digest: str | None) -> bool:
        wanted = self.card.lower()
        if card_name is not None and (card_name.lower() + "-").startswith(wanted + "-"):
            return True
        return card_digest is not None and len(wanted) >= SHORTEST_PREFIX and card_digest.startswith(wanted)


class ControlState(Strict):
    """The operator's word. `authorized_until` is the lease of the machines: without it nothing starts."""

    mode: Mode
    authorized_until: Annotated[AwareDatetime | None, BeforeValidator(_instant)] = None
    allow: tuple[Cost, ...] = Field(default=(), max_length=len(Cost))
    approve: tuple[Approval, ...] = Field(default=(), max_length=1000)
    only: Only | None = None
    reason: str = Field(default="", max_length=500)
    by: str = Field(min_length=1, max_length=100)


def paused(reason: str) -> ControlState:
    """What holds while the operator's word cannot be read."""
    return ControlState(mode=Mode.PAUSE, reason=reason[:500], by="tuneloop")


def parse_control(text: str | bytes, file: str) -> ControlState:
    """Raises InputError for anything but a complete, known and unambiguous order."""
    document = parse_document(_quote_times(text), file)
    state = validate(document, ControlState)
    _refuse_cut_off(document)
    return state


def may_start(
    control: ControlState,
    *,
    now: datetime,
    cost: Cost,
    card_digest: str | None,
    approvals_used: Collection[str],
    expected_s: float,
    card_name: str | None = None,
) -> str | None:
    """Why a trial may not start now; None if it may.

    `card_digest` None: the incumbent is measured, and no card waits for it. `cost` is what the start takes from the
    state that the servers are in. `expected_s` reaches to the end of the trial, release included. `approvals_used`
    are digests of cards whose approval is spent: an approval covers all trials of its card, so pass closed cards.
    """
    return (
        _mode(control)
        or _scope(control, card_name, card_digest)
        or _lease(control, now, expected_s)
        or _cost(control, cost, card_digest, approvals_used)
    )


def approves(control: ControlState, card_digest: str, approvals_used: Collection[str]) -> bool:
    """Whether an unspent approval names this card. A prefix that another card has spent approves nothing."""
    if card_digest in approvals_used:
        return False
    return any(
        card_digest.startswith(approval) and not any(used.startswith(approval) for used in approvals_used)
        for approval in control.approve
    )


def _mode(control: ControlState) -> str | None:
    if control.mode is Mode.RUN:
        return None
    why = f" ({control.reason})" if control.reason else ""
    return f"mode is {control.mode}, said by {control.by}{why}"


def _scope(control: ControlState, card_name: str | None, card_digest: str | None) -> str | None:
    if control.only is None or control.only.names(card_name, card_digest):
        return None
    return f"only card {control.only.card} may run; take `only` out of the state file to go on"


def _lease(control: ControlState, now: datetime, expected_s: float) -> str | None:
    until = control.authorized_until
    if until is None:
        return "authorized_until is not set: the machines are not lent"
    left = (until - now).total_seconds()
    if left <= 0:
        return f"the authorization ended at {until.isoformat(timespec='seconds')}"
    if not 0 <= expected_s < left:  # NaN as well: what cannot be estimated does not fit
        return (
            f"it takes about {_duration(expected_s)} and the authorization ends in {_duration(left)}, "
            f"at {until.isoformat(timespec='seconds')}"
        )
    return None


def _cost(control: ControlState, cost: Cost, card_digest: str | None, approvals_used: Collection[str]) -> str | None:
    if cost in control.allow and cost is not Cost.REBUILD:
        return None
    if card_digest is None:
        return f"a start with cost {cost} is not in `allow`"
    if approves(control, card_digest, approvals_used):
        return None
    spent = "its approval was used; " if card_digest in approvals_used else ""
    return f"{spent}a {cost} change needs an approval: tuneloop approve {card_digest[:12]}"


def _duration(seconds: float) -> str:
    try:
        return str(timedelta(seconds=round(seconds)))
    except (ValueError, OverflowError):
        return "an unknown time"


def _refuse_cut_off(document: Document) -> None:
    data = document.data
    last = list(data)[-1] if isinstance(data, dict) else None
    if last != "by":
        raise document.error(
            document.place_of_key((last,)) if last is not None else START,
            f"`by` has to be the last key, found {last!r} after it; a file without it at the end may be cut off",
        )


# A bare timestamp is accepted here, because the file is written by hand at night. Its key stands at the start
# of its line, so that a text of several lines, which is indented, never matches.
_TIME = r"^([a-z_]+:[ ]+)([0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:.]{5,15}(?:Z|[+-][0-9:]{2,6})?)(?=[ \t\r]*(?:#.*)?$)"
_TIME_IN_TEXT = re.compile(_TIME, re.MULTILINE)
_TIME_IN_BYTES = re.compile(_TIME.encode(), re.MULTILINE)


def _quote_times(text: str | bytes) -> str | bytes:
    if isinstance(text, str):
        return _TIME_IN_TEXT.sub(r'\1"\2"', text)
    return _TIME_IN_BYTES.sub(rb'\1"\2"', text)
