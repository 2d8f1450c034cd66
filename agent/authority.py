"""Whether something may be started or sent now: the operator's file, the lease of the machines, approvals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from executor.clock import Clock
from experiments.agenda import Measure
from experiments.card import Card
from experiments.control import ControlState, Mode, may_start
from experiments.knob import Cost
from experiments.ports import Blocked, Gate
from experiments.serving_config import Role, ServingConfig
from experiments.study import Study
from state.control import ControlFile, ControlReading

SERVERS = (Role.PREFILL, Role.DECODE, Role.MIXED, Role.ROUTER)


@dataclass(frozen=True, kw_only=True)
class Authority:
    """Reads the control file afresh at every question; what it says now is what counts."""

    control: ControlFile
    clock: Clock

    def read(self) -> ControlReading:
        return self.control.read()

    def refusal(self, study: Study, step: Measure, expected_s: float) -> str | None:
        """Why this trial may not start now."""
        return self._refusal(study, step.card, switch_cost(study, step.config, step.card), expected_s)

    def gate(self, study: Study, card: Card | None, config: ServingConfig, remaining_s: Callable[[], float]) -> Gate:
        """The gate of a running trial: asked before each send, with the time that the rest of the trial takes."""
        cost = switch_cost(study, config, card)

        def ask(expected_s: float) -> Blocked | None:
            mode = self.read().state.mode
            expected = min(expected_s, remaining_s()) if expected_s else 0.0
            why = self._refusal(study, card, cost, expected)
            return None if why is None else Blocked(reason=why, cancel=mode is Mode.STOP)

        return ask

    def _refusal(self, study: Study, card: Card | None, cost: Cost, expected_s: float) -> str | None:
        reading = self.read()
        return may_start(
            reading.state,
            now=self.clock.now(),
            cost=cost,
            card_digest=None if card is None else card.digest,
            card_name=None if card is None else card.name,
            approvals_used=set(study.closed),
            expected_s=expected_s,
        )


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
