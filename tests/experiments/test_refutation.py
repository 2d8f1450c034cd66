"""Negative memory: what binds, what is suspect, and what lets a retest in."""

from __future__ import annotations

from dataclasses import replace

from experiments.admission import Code, Rejection, admit
from experiments.card import Card, EvidenceRef
from experiments.figures import incumbent_figures
from experiments.refutation import is_binding, new_evidence, standing_refutation
from experiments.study import Study, fold
from experiments.trial import Reason
from tests.factories import a_draft, a_night

MEMORY = "decode.flag.mem-fraction-static"


def late() -> Study:
    return fold(a_night(settle_held=True))


def moved() -> Study:
    """The same night, with its negatives found under the first configuration: the keep came after them."""
    study = late()
    earlier = study.opened.starting.fingerprint()
    study.refutations = [replace(r, parent_fingerprint=earlier) for r in study.refutations]
    study.cards = {d: c.model_copy(update={"parent_fingerprint": earlier}) for d, c in study.cards.items()}
    return study


def retest(study: Study, *cited: str) -> Card | Rejection:
    figures = incumbent_figures(study)
    refs = tuple(EvidenceRef(id=name, value=figures[name] or 0.0) for name in cited)
    return admit(a_draft(MEMORY, 0.85, 0.95, evidence=refs), study, figures)


def test_a_negative_binds_on_its_own_configuration_whatever_is_cited() -> None:
    """No evidence argues away what was measured here; the words of the failure are not quoted."""
    study = late()

    result = retest(study, "objective.value")

    assert isinstance(result, Rejection)
    assert result.codes == (Code.REFUTED,)
    assert str(Reason.INFEASIBLE) in result.messages[0]
    assert "ran out of" not in result.messages[0]


def test_a_negative_of_another_configuration_is_suspect() -> None:
    """It no longer binds, and the figures that have changed since are listed for whoever wants to try again."""
    study = moved()
    refutation = next(r for r in study.refutations if r.key.path == MEMORY)

    assert not is_binding(study, refutation)
    assert "objective.value" in new_evidence(study, refutation, incumbent_figures(study))


def test_a_retest_needs_a_figure_that_has_changed() -> None:
    """Citing what is as it was lets nothing in; citing what changed materially does."""
    study = moved()

    same = retest(study, "client.accept_length")
    new = retest(study, "objective.value")

    assert isinstance(same, Rejection)
    assert same.codes == (Code.NO_NEW_EVIDENCE,)
    assert isinstance(new, Card)


def test_another_build_makes_a_negative_suspect() -> None:
    """What failed on one version of the engine may work on the next."""
    study = late()
    refutation = next(r for r in study.refutations if r.key.path == MEMORY)

    assert is_binding(study, refutation)
    assert not is_binding(study, replace(refutation, build="0.4.0"))


def test_an_unknown_change_has_no_refutation() -> None:
    """Nothing is forbidden that was never tried."""
    draft = a_draft(MEMORY, 0.85, 0.80)

    assert standing_refutation(late(), draft.change) is None
