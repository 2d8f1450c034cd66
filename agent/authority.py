"""Whether something may be started or sent now: the operator's file, the lease of the machines, approvals.

Reads the control file afresh at every question; what it says now is what counts. Every change of it is heard by whoever
writes the ledger, before it is acted on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from executor.clock import Clock
from experiments.agenda import Evaluate, Measure
from experiments.approvals import grants
from experiments.card import Card
from experiments.control import ControlState, Mode, approves, may_start
from experiments.knob import Cost
from experiments.ports import Blocked, Gate
from experiments.serving_config import Role, ServingConfig
from experiments.study import Study
from state.control import ControlFile, ControlReading

SERVERS = (Role.PREFILL, Role.DECODE, Role.MIXED, Role.ROUTER)

Ground = Callable[[], str | None]
"""A further reason against something, or None."""


def no_ground() -> str | None:
    return None


@dataclass(frozen=True, kw_only=True)
class Authority:
    """`grounds` are asked before a new trial; `turn`, whether the pool is ours, before it and before every send."""

    control: ControlFile
    clock: Clock
    hear: Callable[[ControlReading], None] = lambda reading: None
    grounds: tuple[Ground, ...] = ()
    turn: Ground = no_ground
    leave: Callable[[], None] = lambda: None  # raises where the process has to go

    def read(self) -> ControlReading:
        self.leave()
        reading = self.control.read()
        self.hear(reading)
        return reading

    def refusal(self, study: Study, step: Measure | Evaluate, expected_s: float) -> str | None:
        """Why this may not start now. The pool is taken last, when nothing else is in the way."""
        card = study.open_card
        why = self._refusal(study, card, switch_cost(study, step.config, card), expected_s)
        return why or self._ground() or self.turn()

    def proposal_refusal(self, study: Study) -> str | None:
        """Why no card may be asked for now: it could not be run, or the operator wants another one."""
        reading = self.read()
        if reading.state.only is not None:
            names = ", ".join(card.name for card in study.cards.values()) or "none"
            return f"only card {reading.state.only.card} may run, and it is not open (cards: {names})"
        return self._refusal(study, None, Cost.HOT, 0.0, allow_any_cost=True) or self._ground()

    def gate(self, study: Study, card: Card | None, config: ServingConfig, remaining_s: Callable[[], float]) -> Gate:
        """The gate of a running trial: asked before each send, with the time that the rest of the trial takes."""
        card = card or study.open_card
        cost = switch_cost(study, config, card)

        def ask(expected_s: float) -> Blocked | None:
            mode = self.read().state.mode
            expected = min(expected_s, remaining_s()) if expected_s else 0.0
            why = self._refusal(study, card, cost, expected) or self.turn()
            return None if why is None else Blocked(reason=why, cancel=mode is Mode.STOP)

        return ask

    def wanted_approval(self, study: Study, step: Measure | Evaluate) -> Card | None:
        """The card that this step waits for a word about, if it does."""
        card, control = study.open_card, self._control(study)
        if card is None or control.mode is not Mode.RUN:
            return None
        cost = switch_cost(study, step.config, card)
        is_free = cost in control.allow and cost is not Cost.REBUILD
        return None if is_free or approves(control, card.digest, set(study.closed)) else card

    def _ground(self) -> str | None:
        return next((why for why in (ground() for ground in self.grounds) if why is not None), None)

    def _refusal(
        self, study: Study, card: Card | None, cost: Cost, expected_s: float, *, allow_any_cost: bool = False
    ) -> str | None:
        control = self._control(study)
        if allow_any_cost:
            control = control.model_copy(update={"allow": tuple(Cost)})
        return may_start(
            control,
            now=self.clock.now(),
            cost=cost,
            card_digest=None if card is None else card.digest,
            card_name=None if card is None else card.name,
            approvals_used=set(study.closed),
            expected_s=expected_s,
        )

    def _control(self, study: Study) -> ControlState:
        """What the file says, without the approvals that went with an earlier lease."""
        state = self.read().state
        standing = grants(study.directives, self.clock.now())
        lapsed = {approval for approval, grant in standing.items() if grant.lapsed}
        return state.model_copy(update={"approve": tuple(a for a in state.approve if a not in lapsed)})


def allowed_costs(control: ControlState) -> tuple[str, ...]:
    return tuple(map(str, control.allow))


def switch_cost(study: Study, config: ServingConfig, card: Card | None) -> Cost:
    """What starting this configuration takes from the state that the last trial left the servers in."""
    if card is not None and card.cost is Cost.REBUILD:
        return Cost.REBUILD
    last = next((t for t in reversed(study.trials.values()) if t.record is not None), None)
    if last is not None and last.started.config.fingerprint(*SERVERS) == config.fingerprint(*SERVERS):
        return Cost.HOT
    return Cost.RESTART
