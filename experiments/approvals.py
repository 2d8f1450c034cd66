"""Which approvals still open a card: given in the control file, used once, gone with the lease they were given under.

An approval holds until the `authorized_until` it stood beside. A later lease that was granted in time carries it on;
one that came after it had run out does not: then it is given again, which adds it to the list once more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from experiments.ledger import OperatorSpoke


@dataclass(frozen=True, kw_only=True)
class Grant:
    """One approval as it stands. `until` None: no lease stands beside it yet."""

    count: int  # how often the file lists it
    until: datetime | None
    lapsed: bool = False

    def seen(self, now: datetime) -> Grant:
        over = self.until is not None and now >= self.until
        return Grant(count=self.count, until=self.until, lapsed=self.lapsed or over)


def grants(directives: Iterable[OperatorSpoke], now: datetime) -> dict[str, Grant]:
    """Every approval that the last directive lists, in its order. A file that could not be followed changes none."""
    standing: dict[str, Grant] = {}
    for word in directives:
        if word.control is None:
            continue
        listed = word.control.approve
        after: dict[str, Grant] = {}
        for approval in dict.fromkeys(listed):
            before = standing.get(approval)
            count = listed.count(approval)
            carried = before.seen(word.at) if before is not None and count <= before.count else None
            after[approval] = Grant(
                count=count, until=word.control.authorized_until, lapsed=carried is not None and carried.lapsed
            )
        standing = after
    return {approval: grant.seen(now) for approval, grant in standing.items()}


def live_approvals(directives: Iterable[OperatorSpoke], now: datetime) -> tuple[str, ...]:
    return tuple(approval for approval, grant in grants(directives, now).items() if not grant.lapsed)
