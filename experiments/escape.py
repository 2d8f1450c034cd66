"""Escape cards: when two changes may stand on one card. The rule is code, and no proposer can argue around it.

A single change is the rule, because only then can an effect be credited. Two at once are let through where single
changes cannot lead on, and the card then credits the combination only:

- one part depends on the setting that the other part makes, or
- one part alone was stopped by a limit on this very configuration (memory, an SLO) and needs what gives room, or
- both parts were tried alone in this study.
"""

from __future__ import annotations

from experiments.serving_config import Change, ServingConfig
from experiments.study import Study
from experiments.trial import Reason

STOPPED_BY_A_LIMIT = frozenset({Reason.INFEASIBLE, Reason.SLO_VIOLATED})


def bundle_refusal(study: Study, change: Change) -> str | None:
    """Why this change of two parts may not run; None for one that may, and for a single change."""
    if change.also is None:
        return None
    first, second = change.parts[0], change.also
    if second.also is not None:
        return "a bundle has two parts, never more"
    if first.path == second.path:
        return f"both parts set {first.path}"
    if _depends(study, first, second) or any(was_stopped(study, part) for part in (first, second)):
        return None
    untried = [part for part in (first, second) if not was_tried_alone(study, part)]
    if not untried:
        return None
    listed = " and ".join(f"{part.path} = {part.to_value}" for part in untried)
    return f"two changes at once are for parts that were tried alone or that a limit stopped; try {listed} alone first"


def was_stopped(study: Study, part: Change) -> bool:
    """A limit refuted this part on the present incumbent."""
    here = study.incumbent.fingerprint()
    return any(
        r.key.also is None
        and (r.key.path, r.key.to_value) == (str(part.path), part.to_value)
        and r.parent_fingerprint == here
        and r.reason in STOPPED_BY_A_LIMIT
        for r in study.refutations
    )


def was_tried_alone(study: Study, part: Change) -> bool:
    """It was the single change of a closed card, or a setting of an earlier incumbent."""
    for digest in study.closed:
        change = study.cards[digest].draft.change
        if change.also is None and (change.path, change.to_value) == (part.path, part.to_value):
            return True
    return any(config.get(part.path) == part.to_value for config in incumbents(study))


def incumbents(study: Study) -> tuple[ServingConfig, ...]:
    return (study.opened.starting, *(kept.config for kept in study.kept))


def _depends(study: Study, first: Change, second: Change) -> bool:
    for part, other in ((first, second), (second, first)):
        knob = study.goal.space.knob(part.path)
        if knob is not None and str(other.path) in knob.depends_on and other.from_value is None:
            return True
    return False
