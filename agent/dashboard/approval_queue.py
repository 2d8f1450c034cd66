"""Which cards wait for a person's word, and what became of the words that were given."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from agent.authority import Authority, switch_cost
from experiments.agenda import Measure, next_step
from experiments.approvals import Grant, grants
from experiments.card import Card
from experiments.control import approves
from experiments.knob import Cost
from experiments.study import Study


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """The open card. `cost` is what its next trial takes; `needs_word` whether somebody has to approve it first."""

    card: Card
    cost: Cost
    needs_word: bool
    is_approved: bool


@dataclass(frozen=True, kw_only=True)
class Given:
    """One approval that the control file lists. `card` None: it names no card of this study."""

    approval: str
    card: Card | None
    grant: Grant
    is_used: bool


@dataclass(frozen=True, kw_only=True)
class Queue:
    waiting: Waiting | None
    given: tuple[Given, ...]


def approval_queue(study: Study, authority: Authority, now: datetime) -> Queue:
    standing = grants(study.directives, now)
    control = authority.read().state
    # What was written just now is in force, though no driver may have heard of it yet.
    for approval in control.approve:
        standing.setdefault(approval, Grant(count=control.approve.count(approval), until=control.authorized_until))
    given = tuple(_given(study, approval, grant) for approval, grant in standing.items())
    return Queue(waiting=_waiting(study, authority, now), given=given)


def _waiting(study: Study, authority: Authority, now: datetime) -> Waiting | None:
    card, step = study.open_card, next_step(study, now)
    if card is None:
        return None
    config = step.config if isinstance(step, Measure) else card.config
    cost, control = switch_cost(study, config, card), authority.read().state
    lapsed = {approval for approval, grant in grants(study.directives, now).items() if grant.lapsed}
    live = control.model_copy(update={"approve": tuple(a for a in control.approve if a not in lapsed)})
    is_free = cost in control.allow and cost is not Cost.REBUILD
    is_approved = approves(live, card.digest, set(study.closed))
    return Waiting(card=card, cost=cost, needs_word=not is_free and not is_approved, is_approved=is_approved)


def _given(study: Study, approval: str, grant: Grant) -> Given:
    card = next((c for digest, c in study.cards.items() if digest.startswith(approval)), None)
    is_used = card is not None and (card.digest in study.approvals_used or card.digest in study.closed)
    return Given(approval=approval, card=card, grant=grant, is_used=is_used)
