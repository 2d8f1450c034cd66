"""The fold: the same study however its entries come, and what each entry means to those who ask."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.errors import InvalidTransition
from experiments.ledger import ENTRY, ConfigurationKept, LedgerEntry, StopReason, StudyReopened, StudyStopped
from experiments.study import Study, extend, fold
from experiments.trial import FAULT_REASONS, Reason, Route, Tier
from tests.experiments.scripted import START, Script
from tests.factories import EVENING, a_card, a_draft, a_load, a_night


@cache
def night() -> tuple[LedgerEntry, ...]:
    return tuple(a_night(settle_held=True))


@settings(deadline=None, max_examples=60)
@given(cuts=st.lists(st.integers(min_value=1, max_value=len(night())), max_size=8))
def test_fold_does_not_depend_on_batches(cuts: list[int]) -> None:
    """Folding at once or extending by any batches gives the same study, drift watch included."""
    entries, places = list(night()), sorted({1, *cuts, len(night())})
    study = fold(entries[: places[0]])
    for begin, end in pairwise(places):
        extend(study, entries[begin:end])
    assert study == fold(entries)


@settings(deadline=None, max_examples=30)
@given(length=st.integers(min_value=1, max_value=len(night())))
def test_every_prefix_is_a_study(length: int) -> None:
    """At any time at most one trial is open and at most one card, and the position counts the entries."""
    study = fold(night()[:length])
    assert study.position == length
    assert sum(t.record is None for t in study.trials.values()) <= 1
    assert len(study.cards) - len(study.closed) in (0, 1)
    assert (study.open_trial is None) == all(t.record is not None for t in study.trials.values())
    assert (study.open_card is None) == (len(study.cards) == len(study.closed))


def test_stored_entries_fold_to_the_same_study() -> None:
    """Entries that went through JSON and back give an equal study."""
    stored = [ENTRY.validate_json(ENTRY.dump_json(entry)) for entry in night()]
    assert fold(stored) == fold(night())


@settings(deadline=None, max_examples=30)
@given(data=st.data())
def test_illegal_order_raises_and_changes_nothing(data: st.DataObject) -> None:
    """Replaying an entry that needs its place is refused and leaves the study as it was."""
    length = data.draw(st.integers(min_value=2, max_value=len(night())))
    study, again = fold(night()[:length]), data.draw(st.sampled_from(night()[:length]))
    if again.kind in ("card_rejected", "proposer_failed", "operator_spoke", "approval_used"):
        return
    try:
        extend(study, [again])
    except InvalidTransition:
        assert study == fold(night()[:length])
    else:
        assert again.kind in ("study_stopped", "study_reopened", "trial_held")  # held again once it was settled


def test_no_fault_is_a_refutation() -> None:
    """Negative memory holds what the configuration did, never what the machines or the client did."""
    study = fold(night())
    assert {c.classification.route for c in study.closed.values()} >= {Route.ORCHESTRATION_FAULT, Route.VALID_NEGATIVE}
    assert study.refutations
    assert not {r.reason for r in study.refutations} & FAULT_REASONS


def test_fault_has_no_sample() -> None:
    """A trial that failed can be compared with nothing."""
    study = fold(night())
    for trial in study.trials.values():
        failed = trial.record is not None and trial.record.failure is not None
        assert (trial.sample is None) is (failed or trial.record is None)


def test_kept_configuration_becomes_the_incumbent_at_its_position() -> None:
    """From then on it is what challengers are compared with."""
    study = fold(night())
    kept = next(e for e in night() if isinstance(e, ConfigurationKept))
    assert study.incumbent == kept.config
    assert study.incumbent_card == kept.card_digest
    assert study.incumbent_since == night().index(kept) + 1


def test_refutation_keeps_its_conditions() -> None:
    """What was refuted on which configuration, in which scenario, and why."""
    script = Script().baseline().card().run(START * 0.8).close()
    [refutation] = script.study.refutations
    assert refutation.key.path == "prefill.flag.prefill-max-requests"
    assert refutation.key.to_value == 2
    assert refutation.parent_fingerprint == script.study.incumbent.fingerprint()
    assert refutation.scenario_digest == script.study.opened.scenario_digest
    assert refutation.reason is Reason.SLOWER


def test_samples_are_those_of_one_configuration_at_one_load() -> None:
    """In the order in which they were started."""
    script = Script().baseline(START, 170.0, 171.0, 172.0)
    config = script.study.incumbent
    assert [s.trial_id for s in script.study.samples(config, a_load(320))] == ["t002", "t003", "t004"]
    assert [s.tier for s in script.study.samples(config, a_load(640))] == [Tier.BASELINE]
    assert script.study.samples(a_card().config, a_load(320)) == []


def test_evidence_is_the_newest_of_the_incumbent() -> None:
    """A challenger's evidence is never taken for the incumbent's."""
    study = fold(night())
    found = study.latest_evidence()
    assert found is not None
    trial, _ = found
    assert trial.started.config == study.incumbent
    later = [t for t in study.trials.values() if t.position > trial.position and t.record is not None]
    assert not any(t.started.config == study.incumbent and t.record.evidence for t in later)  # type: ignore[union-attr]


def test_tokens_are_counted_over_cards_and_failures() -> None:
    """Admitted cards and failed calls cost; the night has both."""
    study = fold(night())
    assert study.tokens_used() == sum(c.draft.tokens for c in study.cards.values()) + 410


def test_reopening_counts_anew() -> None:
    """Trials, cards and hours before it no longer use up the budget; the record itself stays."""
    script = Script().baseline().refute(2)
    stop = StudyStopped(at=script.now, reason=StopReason.NO_CANDIDATE, detail="enough")
    script.add(stop, StudyReopened(at=script.now, by="ops", reason="another night"))
    assert script.study.stopped is None
    assert (script.study.reopened.trials, script.study.reopened.closed) == (6, 2)
    assert script.study.reopened.at == script.now
    assert len(script.study.trials) == 6


def test_closed_since_counts_last_words() -> None:
    """Cards closed after a position, in order."""
    script = Script().baseline().refute(3)
    positions = script.study.closed_at
    assert [script.study.closed_since(p) for p in (0, positions[0], positions[2])] == [3, 2, 0]


def test_time_of_the_last_entry() -> None:
    """`last_at` is what the last entry says."""
    script = Script().run(START)
    assert script.study.last_at == script.now > EVENING


def test_two_studies_of_one_ledger_share_nothing() -> None:
    """Extending one fold leaves another as it was."""
    entries = Script().baseline().entries
    first, second = fold(entries), fold(entries)
    extend(first, Script().baseline().card(a_draft("decode.flag.max-running-requests", 128, 160)).entries[-1:])
    assert isinstance(second, Study)
    assert first != second
    assert second == fold(entries)


@pytest.mark.parametrize("requests", [320, 640])
def test_drift_watch_is_part_of_the_fold(requests: int) -> None:
    """Runs that the fold has seen are what the watch knows."""
    script = Script().baseline()
    key = (script.study.incumbent.fingerprint(), a_load(requests))
    assert key in script.study.drift._reference
