"""The other optimizer: optuna's TPE, warm-started from every run of the ledger, one move at a time.

TPE draws whole configurations and a card holds one move, so many are drawn, and the open move that most of them hold
comes first. A broken limit and a configuration that could not run are told as violated constraints. Deterministic per
packet. Chosen by `planner.optimizer: tpe` of the goal.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.planner.gaussian_process import Axis
from agent.planner.moves import Move, change_of
from agent.planner.optimizer import evidence_of, no_mechanism, text_of
from agent.planner.packet import EvidencePacket, KnobPart, ObservationPart, Proposal
from agent.planner.ranking import Ranking
from experiments.card import CardDraft, Prediction, Source
from experiments.serving_config import Value

if TYPE_CHECKING:  # optuna takes longer to import than the rest of the planner
    import optuna

DRAWS = 48
STARTUP = 4  # runs below which TPE draws evenly
FIRST_TURN = 4  # votes of a draw for a knob that was never turned
MAX_DRAFTS = 3
BOUND = 0.10  # TPE predicts no effect: a card of it says that it may be so much either way
CHANCE = 0.15

Key = frozenset[tuple[str, Value]]


class TpeProposer:
    """Needs no wall and no mechanism."""

    source = Source.OPTIMIZER

    def propose(self, packet: EvidencePacket) -> Proposal:
        if packet.figures.get("objective.value") is None:
            return Proposal(drafts=(), note="the incumbent was not measured")
        moves = {_key(ranked.move): ranked.move for ranked in Ranking(packet).open_moves()}
        if not moves:
            return Proposal(drafts=(), note="every allowed value was tried on this configuration")
        votes = _votes(packet, moves)
        ranked = sorted(moves, key=lambda key: (-votes[key], sorted(map(str, key))))
        drafts = tuple(_draft(moves[key], packet) for key in ranked[:MAX_DRAFTS])
        return Proposal(drafts=drafts, note=f"{DRAWS} draws over {len(packet.knobs)} knobs")


@dataclass(frozen=True)
class _Scale:
    """A knob as TPE sees it: places in order, or names without any."""

    values: tuple[Value, ...]
    is_ordered: bool

    @classmethod
    def of(cls, knob: KnobPart) -> _Scale:
        values = knob.values if knob.current in knob.values else (*knob.values, knob.current)
        axis = Axis(values)
        return cls(tuple(sorted(values, key=axis.place)) if axis.is_ordered else values, axis.is_ordered)

    def distribution(self) -> optuna.distributions.BaseDistribution:
        from optuna.distributions import CategoricalDistribution, IntDistribution

        last = len(self.values) - 1
        return IntDistribution(0, last) if self.is_ordered else CategoricalDistribution(tuple(range(last + 1)))


def _key(move: Move) -> Key:
    return frozenset(setting.key for setting in move)


def _votes(packet: EvidencePacket, moves: Mapping[Key, Move]) -> Counter[Key]:
    seen = {knob.path: {o.values[place] for o in packet.observations} for place, knob in enumerate(packet.knobs)}
    weights = {key: FIRST_TURN if any(len(seen[path]) < 2 for path, _ in key) else 1 for key in moves}
    votes: Counter[Key] = Counter()
    for drawn in _draws(packet):
        votes.update({key: weights[key] for key in moves if key <= drawn})
    return votes


def _draws(packet: EvidencePacket) -> Iterator[Key]:
    from optuna.trial import TrialState

    scales = {knob.path: _Scale.of(knob) for knob in packet.knobs}
    space = {path: scale.distribution() for path, scale in scales.items()}
    study = _study(packet)
    for observation in packet.observations:
        if all(v in scales[knob.path].values for knob, v in zip(packet.knobs, observation.values, strict=True)):
            study.add_trial(_told(packet, observation, scales, space))
    for _ in range(DRAWS):
        trial = study.ask(space)
        yield frozenset((path, scales[path].values[place]) for path, place in trial.params.items())
        study.tell(trial, state=TrialState.FAIL)  # it was not run: it says nothing


def _study(packet: EvidencePacket) -> optuna.Study:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", category=optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(
            seed=int(packet.digest[:8], 16), multivariate=True, n_startup_trials=STARTUP, constant_liar=False
        )
    direction = optuna.study.StudyDirection[packet.objective.direction.upper()]
    return optuna.create_study(direction=direction, sampler=sampler)


def _told(
    packet: EvidencePacket,
    observation: ObservationPart,
    scales: Mapping[str, _Scale],
    space: dict[str, optuna.distributions.BaseDistribution],
) -> optuna.trial.FrozenTrial:
    import optuna

    limits = {f"limit_{n}": share - 1 for n, share in enumerate(observation.limits) if share is not None}
    values = zip(packet.knobs, observation.values, strict=True)
    return optuna.trial.create_trial(
        params={knob.path: scales[knob.path].values.index(value) for knob, value in values},
        distributions=space,
        value=observation.objective or 0.0,  # of what could not run: the constraint decides, whatever the value
        constraints={**limits, "starts": 1.0 if observation.infeasible else -1.0},
    )


def _draft(move: Move, packet: EvidencePacket) -> CardDraft:
    change, names = change_of(move), text_of(move)
    return CardDraft(
        change=change,
        wall=packet.walls[0].wall,
        mechanism=no_mechanism(names),
        evidence=evidence_of(packet, change),
        prediction=Prediction(low=-BOUND, high=BOUND, probability=CHANCE),
        if_promising=f"confirm {names} at the formal load",
        if_negative=f"{names} stays closed on this configuration",
        source=Source.OPTIMIZER,
    )
