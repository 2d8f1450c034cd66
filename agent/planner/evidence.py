"""Build the evidence packet from a study. Pure: the same ledger gives the same packet."""

from __future__ import annotations

from datetime import datetime

from agent.planner.knob_table import effects_of
from agent.planner.observations import observations_of
from agent.planner.packet import (
    BudgetPart,
    EvidencePacket,
    KnobPart,
    NoisePart,
    ObjectivePart,
    OutcomePart,
    WallPart,
)
from experiments.bottleneck import find_walls
from experiments.figures import FigureTable, incumbent_figures
from experiments.knob import Knob
from experiments.refutation import SHOWN, is_binding, is_unanswered, is_undecided, new_evidence
from experiments.serving_config import Value
from experiments.statistics import student_t
from experiments.study import Refutation, Study
from experiments.verdict import noise_of


def assemble_packet(
    study: Study,
    now: datetime,
    *,
    allowed_costs: tuple[str, ...],
    steering: tuple[str, ...] = (),
) -> EvidencePacket:
    """What is known about the present incumbent, with an id for every figure."""
    figures = incumbent_figures(study)
    return EvidencePacket(
        study_id=study.study_id,
        simulated=study.opened.simulated,
        objective=_objective(study),
        noise=_noise(study),
        incumbent=dict(sorted(study.incumbent.settings.items())),
        figures=figures,
        walls=tuple(
            WallPart(wall=w.wall, strength=round(w.strength, 4), figures=w.figures, sentence=w.sentence)
            for w in find_walls(figures)
        ),
        knobs=tuple(_knob(knob, study) for knob in study.goal.space.knobs),
        outcomes=_outcomes(study, figures),
        observations=observations_of(study),
        budget=_budget(study, now, allowed_costs),
        steering=steering,
    )


def _objective(study: Study) -> ObjectivePart:
    goal = study.goal
    scenario, load = goal.scenario, goal.scenario.load
    rate = "unlimited" if load.rate is None else f"{load.rate:g}"
    return ObjectivePart(
        metric=goal.objective.metric,
        window=goal.objective.window,
        direction=goal.objective.direction,
        target=None if goal.objective.target is None else goal.objective.target.text(goal.objective.of.unit),
        constraints=tuple(map(str, goal.constraints)),
        scenario=(
            f"{scenario.model}, {scenario.deployment}, {scenario.input.encoded_tokens} in / "
            f"{scenario.output_tokens} out, {scenario.cache.state} cache, "
            f"N{load.requests} C{load.concurrency} r{rate}"
        ),
        min_effect=goal.min_effect,
        confidence=goal.confidence,
    )


def _noise(study: Study) -> NoisePart:
    goal = study.goal
    noise = noise_of(study, goal.objective.metric, goal.screening.window)
    spread = noise.relative_sd * (1 + 1 / goal.noise.repeats) ** 0.5
    return NoisePart(
        relative_sd=noise.relative_sd,
        repeats=noise.repeats,
        smallest_visible_gain=student_t(noise.df, (1 + goal.confidence) / 2) * spread,
    )


def _knob(knob: Knob, study: Study) -> KnobPart:
    effects = effects_of(knob.name)
    return KnobPart(
        path=str(knob.path),
        role=knob.role,
        kind=knob.kind,
        name=knob.name,
        current=knob.current(study.incumbent),
        values=_with_current(knob, study),
        cost=knob.cost,
        alters_numerics=knob.alters_numerics,
        relieves=tuple(dict.fromkeys(effect.wall for effect in effects)),
        mechanism=effects[0].mechanism if effects else "",
        tried=_tried(knob, study),
        undecided=_undecided(knob, study),
    )


def _tried(knob: Knob, study: Study) -> tuple[Value, ...]:
    """Values that were judged alone on this configuration, and those that a kept change of this knob left behind.

    One that was lost to a fault may be asked for once more.
    """
    here = study.incumbent.fingerprint()
    judged = [
        card.draft.change.to_value
        for card in study.cards.values()
        if card.parent_fingerprint == here
        and card.draft.change.path == knob.path
        and card.draft.change.also is None
        and not is_unanswered(study, card.draft.change)
    ]
    left = [
        change.from_value
        for kept in study.kept
        for change in study.cards[kept.card_digest].draft.change.parts
        if change.path == knob.path
    ]
    return tuple(dict.fromkeys([*judged, *left]))


def _undecided(knob: Knob, study: Study) -> tuple[Value, ...]:
    return tuple(
        r.key.to_value
        for r in study.refutations
        if r.key.path == str(knob.path) and r.key.also is None and is_binding(study, r) and is_undecided(study, r)
    )


def _with_current(knob: Knob, study: Study) -> tuple[Value, ...]:
    current, values = knob.current(study.incumbent), knob.candidates()
    return values if current in values or current is None else (*values, current)


def _outcomes(study: Study, figures: FigureTable) -> tuple[OutcomePart, ...]:
    refutations = {r.card_digest: r for r in study.refutations}
    return tuple(_outcome(study, digest, refutations.get(digest), figures) for digest in study.closed)


def _outcome(study: Study, digest: str, refutation: Refutation | None, figures: FigureTable) -> OutcomePart:
    card, closed = study.cards[digest], study.closed[digest]
    change, comparison = card.draft.change, closed.classification.comparison
    in_scope = card.parent_fingerprint == study.incumbent.fingerprint()
    if refutation is not None:
        in_scope = is_binding(study, refutation)
    suspect = not in_scope and not closed.kept
    news = new_evidence(study, refutation, figures) if suspect and refutation is not None else ()
    return OutcomePart(
        card=card.name,
        change=str(change),
        path=str(change.path),
        to_value=change.to_value,
        also=None if change.also is None else (str(change.also.path), change.also.to_value),
        route=closed.classification.route,
        reason=closed.classification.reason,
        gain=None if comparison is None else round(comparison.gain, 5),
        source=card.draft.source,
        in_scope=in_scope,
        suspect=suspect,
        new_evidence=news[:SHOWN],
    )


def _budget(study: Study, now: datetime, allowed_costs: tuple[str, ...]) -> BudgetPart:
    budget = study.goal.budget
    used = (now - study.opened.at).total_seconds() / 3600
    return BudgetPart(
        trials_left=max(budget.trials - len(study.trials), 0),
        hours_left=round(max(budget.hours - used, 0.0), 3),
        tokens_left=max(budget.llm_tokens - study.tokens_used(), 0) if budget.llm_tokens else None,
        allowed_costs=allowed_costs,
    )
