"""Admit a draft as a card, or refuse it with codes that a proposer can act on.

Telling the planner is advice; this is law: exactly one change, inside the declared space, from the incumbent's own
value, resting on figures that exist, and not refuted under the same conditions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from experiments.card import Card, CardDraft, novelty_key
from experiments.comparison import is_one_change
from experiments.escape import bundle_refusal
from experiments.knob import Cost, Knob
from experiments.refutation import is_binding, is_unanswered, retest_refusal, standing_refutation
from experiments.serving_config import Change, ServingConfig, diff
from experiments.study import Study

# A cited value may be rounded as people round: to three significant figures.
EVIDENCE_TOLERANCE = 0.005


class Code(StrEnum):
    """Why a draft is refused; machine-readable, fed back to the proposer."""

    UNKNOWN_KNOB = "unknown_knob"
    OUT_OF_BOUNDS = "out_of_bounds"
    NO_CHANGE = "no_change"
    WRONG_FROM = "wrong_from"
    NOT_ONE_CHANGE = "not_one_change"
    REFUTED = "refuted"
    NO_NEW_EVIDENCE = "no_new_evidence"
    DUPLICATE = "duplicate"
    EVIDENCE_UNKNOWN = "evidence_unknown"
    EVIDENCE_MISMATCH = "evidence_mismatch"
    NO_EVIDENCE = "no_evidence"
    DEPENDENCY_MISSING = "dependency_missing"
    INVALID_CONFIGURATION = "invalid_configuration"
    BUNDLE_REFUSED = "bundle_refused"
    EXPECTED_INFEASIBLE = "expected_infeasible"
    OUTBID = "outbid"


class Objection(NamedTuple):
    code: Code
    message: str


class Rejection(BaseModel):
    """Every objection to one draft."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    codes: tuple[Code, ...]
    messages: tuple[str, ...]


def admit(
    draft: CardDraft,
    study: Study,
    figures: Mapping[str, float | None],
    invalid: tuple[str, ...] = (),
    *,
    expected: Objection | None = None,
) -> Card | Rejection:
    """`figures` are the evidence of the incumbent by id; `invalid` are rules that the configuration would break
    before anything starts (the engine's size rules), found by whoever knows the engine; `expected` is what the runs so
    far say against it."""
    knobs = [study.goal.space.knob(part.path) for part in draft.change.parts]
    found = [knob for knob in knobs if knob is not None]
    if len(found) < len(knobs):
        unknown = draft.change.parts[knobs.index(None)].path
        known = ", ".join(str(k.path) for k in study.goal.space.knobs)
        return _rejection([Objection(Code.UNKNOWN_KNOB, f"{unknown} is not a knob; knobs: {known}")])
    objections = [
        *_change_objections(draft.change, found, study),
        *_novelty_objections(draft, study, figures),
        *_evidence_objections(draft, figures),
        *_dependency_objections(draft.change, found, study.incumbent),
        *(Objection(Code.INVALID_CONFIGURATION, message) for message in invalid),
        *([expected] if expected is not None else []),
    ]
    if objections:
        return _rejection(objections)
    return Card(
        number=len(study.cards) + 1,
        draft=draft,
        parent=study.incumbent,
        parent_fingerprint=study.incumbent.fingerprint(),
        scenario_digest=study.opened.scenario_digest,
        cost=max((knob.cost for knob in found), key=list(Cost).index),
        alters_numerics=any(knob.alters_numerics for knob in found),
    )


def _rejection(objections: list[Objection]) -> Rejection:
    return Rejection(codes=tuple(o.code for o in objections), messages=tuple(o.message for o in objections))


def _change_objections(change: Change, knobs: Sequence[Knob], study: Study) -> list[Objection]:
    found = [o for part, knob in zip(change.parts, knobs, strict=True) for o in _value_objections(part, knob, study)]
    why = bundle_refusal(study, change)
    if why is not None:
        found.append(Objection(Code.BUNDLE_REFUSED, why))
    return found


def _value_objections(change: Change, knob: Knob, study: Study) -> list[Objection]:
    incumbent, found = study.incumbent, []
    if not knob.contains(change.to_value):
        allowed = ", ".join(map(str, knob.values)) if knob.values else f"the range {knob.range}"
        found.append(Objection(Code.OUT_OF_BOUNDS, f"{change.path}: {change.to_value} is not in {allowed}"))
    now = incumbent.get(knob.path)
    if change.from_value != now:
        found.append(Objection(Code.WRONG_FROM, f"{change.path} is {now} now, the draft says {change.from_value}"))
    if change.to_value == now or (now is None and change.to_value == knob.default):
        found.append(Objection(Code.NO_CHANGE, f"{change.path} is {now} already"))
        return found
    differences = diff(incumbent, incumbent.with_value(change.path, change.to_value))
    if not is_one_change(differences, change.model_copy(update={"from_value": now})):
        listed = "; ".join(map(str, differences))
        found.append(Objection(Code.NOT_ONE_CHANGE, f"the configurations would differ by [{listed}]"))
    return found


def _novelty_objections(draft: CardDraft, study: Study, figures: Mapping[str, float | None]) -> list[Objection]:
    refutation = standing_refutation(study, draft.change)
    if refutation is not None:
        binds = is_binding(study, refutation)
        why = retest_refusal(study, refutation, [ref.id for ref in draft.evidence], figures)
        if why is not None:
            return [Objection(Code.REFUTED if binds else Code.NO_NEW_EVIDENCE, why)]
        if binds:
            return []  # it was asked on this configuration and not decided
    key, here = novelty_key(draft.change), study.incumbent.fingerprint()
    for card in study.cards.values():
        if novelty_key(card.draft.change) == key and card.parent_fingerprint == here:
            if is_unanswered(study, draft.change):
                return []
            return [Objection(Code.DUPLICATE, f"card {card.name} is the same change of the same configuration")]
    return []


def _evidence_objections(draft: CardDraft, figures: Mapping[str, float | None]) -> list[Objection]:
    if not draft.evidence:
        return [Objection(Code.NO_EVIDENCE, "a card rests on at least one figure of the evidence packet")]
    found = []
    for ref in draft.evidence:
        actual = figures.get(ref.id)
        if actual is None:
            found.append(Objection(Code.EVIDENCE_UNKNOWN, f"there is no observed figure {ref.id}"))
        elif not abs(actual - ref.value) <= EVIDENCE_TOLERANCE * max(abs(actual), 1e-9):  # so that NaN never matches
            found.append(Objection(Code.EVIDENCE_MISMATCH, f"{ref.id} is {actual:.4g}, the draft says {ref.value:.4g}"))
    return found


def _dependency_objections(change: Change, knobs: Sequence[Knob], incumbent: ServingConfig) -> list[Objection]:
    """A part of a bundle may be what the other part needs."""
    settings = incumbent.changed(change).settings
    missing = [(knob.path, name) for knob in knobs for name in knob.depends_on if name not in settings]
    return [Objection(Code.DEPENDENCY_MISSING, f"{path} needs {name} to be set first") for path, name in missing]
