"""The optimizer as a proposer: TPE over the declared space, warm-started from the ledger, one change at a time.

TPE suggests whole configurations; a card changes one thing. So several suggestions are drawn and each differing setting
of each counts as one vote; the untried single change with the most votes is proposed. Deterministic per packet.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from agent.planner.packet import EvidencePacket, KnobPart, OutcomePart, Proposal
from experiments.card import CardDraft, EvidenceRef, Prediction, Source
from experiments.serving_config import Change, Kind, Role, Value

if TYPE_CHECKING:  # optuna costs more to import than the rest of the planner
    import optuna

DRAWS = 24
MAX_DRAFTS = 3
INFEASIBLE = -1.0  # relative effect that stands for "cannot run": below any real loss


class OptimizerProposer:
    """Needs no wall and no mechanism: it goes where the measured effects point."""

    source = Source.OPTIMIZER

    def propose(self, packet: EvidencePacket) -> Proposal:
        open_knobs = {k.path: k for k in packet.knobs if k.cost in packet.budget.allowed_costs and _untried(k)}
        if not open_knobs or packet.figures.get("objective.value") is None:
            return Proposal(drafts=(), note="every allowed value was tried on this configuration")
        votes = _votes(packet, open_knobs)
        ranked = sorted(votes.items(), key=lambda item: (-item[1], item[0][0], str(item[0][1])))
        drafts = tuple(_draft(open_knobs[path], value, packet) for (path, value), _ in ranked[:MAX_DRAFTS])
        return Proposal(drafts=drafts, note=f"{DRAWS} draws over {len(packet.knobs)} knobs")


def _untried(knob: KnobPart) -> list[Value]:
    return [v for v in knob.values if v != knob.current and v not in knob.tried]


def _votes(packet: EvidencePacket, open_knobs: dict[str, KnobPart]) -> Counter[tuple[str, Value]]:
    """Votes for single untried changes. A knob that was turned less gets the votes of the unexplored."""
    votes: Counter[tuple[str, Value]] = Counter()
    for values in _draws(packet):
        for path, value in values.items():
            knob = open_knobs.get(path)
            if knob is not None and value in _untried(knob):
                votes[path, value] += 1
    if not votes:
        for path, knob in open_knobs.items():
            votes[path, _untried(knob)[0]] += 1
    for path, value in list(votes):
        votes[path, value] *= 4 if not open_knobs[path].tried else 1
    return votes


def _draws(packet: EvidencePacket) -> Iterable[dict[str, Value]]:
    study, space = _warm_study(packet)
    for _ in range(DRAWS):
        trial = study.ask(space)
        yield {path: _value_of(packet, path, index) for path, index in trial.params.items()}


def _warm_study(packet: EvidencePacket) -> tuple[optuna.Study, dict[str, optuna.distributions.BaseDistribution]]:
    """A study in memory that has seen the incumbent (effect 0) and every closed card's measured effect."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    space: dict[str, optuna.distributions.BaseDistribution] = {
        knob.path: optuna.distributions.CategoricalDistribution(tuple(range(len(knob.values))))
        for knob in packet.knobs
        if len(knob.values) > 1
    }
    sampler = optuna.samplers.TPESampler(seed=int(packet.digest[:8], 16), multivariate=True, n_startup_trials=4)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    here = {knob.path: _index_of(knob, knob.current) for knob in packet.knobs if knob.path in space}
    study.add_trial(optuna.trial.create_trial(params=dict(here), distributions=space, value=0.0))
    for outcome in packet.outcomes:
        effect = _effect(outcome)
        knob = next((k for k in packet.knobs if k.path == outcome.path and k.path in space), None)
        if effect is None or knob is None or outcome.to_value not in knob.values:
            continue
        params = {**here, outcome.path: _index_of(knob, outcome.to_value)}
        study.add_trial(optuna.trial.create_trial(params=params, distributions=space, value=effect))
    return study, space


def _effect(outcome: OutcomePart) -> float | None:
    """The measured relative effect; a fault taught nothing and gives None."""
    if outcome.reason == "infeasible":
        return INFEASIBLE
    return outcome.gain if outcome.route != "orchestration_fault" else None


def _index_of(knob: KnobPart, value: Value) -> int:
    return knob.values.index(value) if value in knob.values else 0


def _value_of(packet: EvidencePacket, path: str, index: int) -> Value:
    return next(knob.values[index] for knob in packet.knobs if knob.path == path)


def _draft(knob: KnobPart, value: Value, packet: EvidencePacket) -> CardDraft:
    objective = packet.figures["objective.value"]
    return CardDraft(
        change=Change(
            role=Role(knob.role), kind=Kind(knob.kind), name=knob.name, from_value=knob.current, to_value=value
        ),
        wall=packet.walls[0].wall,
        mechanism=f"No mechanism is claimed: {knob.name} = {value} is where the measured effects and the gaps in "
        "what was tried point the optimizer.",
        evidence=(EvidenceRef(id="objective.value", value=objective or 0.0),),
        prediction=Prediction(low=-0.10, high=0.10, probability=0.15),
        if_promising=f"confirm {knob.name} {value} at the formal load",
        if_negative=f"{knob.name} {value} stays closed on this configuration",
        source=Source.OPTIMIZER,
    )
