"""What an earlier negative still forbids. Its scope is the configuration, load, build and topology it was found under.

Inside its scope it binds. Outside it is suspect: one retest is let through for a proposal that cites a figure which has
changed materially since, because the mechanism that was refuted there may work here. What was never decided binds
less: a small gain that was neither shown nor excluded may be asked for once more, under the same conditions; and so may
a change whose card was lost to a fault, which is no negative at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from experiments.card import NoveltyKey, novelty_key
from experiments.figures import figures_before
from experiments.serving_config import Change
from experiments.study import Refutation, Study
from experiments.trial import Reason, Route

MATERIAL = 0.10  # relative change of a figure that makes it new evidence
ASKED_TWICE = 2
SHOWN = 5


def standing_refutation(study: Study, change: Change) -> Refutation | None:
    """The negative of this change that counts now: one that binds here, or else the newest one."""
    key = novelty_key(change)
    found = [r for r in reversed(study.refutations) if r.key == key]
    return next((r for r in found if is_binding(study, r)), found[0] if found else None)


def is_binding(study: Study, refutation: Refutation) -> bool:
    """Found on this very configuration (its load and topology are settings of it), scenario and build."""
    build = study.build(study.incumbent.fingerprint())
    return (
        refutation.parent_fingerprint == study.incumbent.fingerprint()
        and refutation.scenario_digest == study.opened.scenario_digest
        and (build is None or refutation.build is None or refutation.build == build)
    )


def is_undecided(study: Study, refutation: Refutation) -> bool:
    """A gain of the size that the goal looks for was seen, neither shown nor excluded, and asked for once only."""
    comparison = study.closed[refutation.card_digest].classification.comparison
    if refutation.reason is not Reason.NO_SIGNIFICANT_GAIN or comparison is None:
        return False
    asked = sum(
        1
        for r in study.refutations
        if r.key == refutation.key and r.parent_fingerprint == refutation.parent_fingerprint
    )
    goal = study.goal
    return asked < ASKED_TWICE and comparison.gain >= goal.min_effect and comparison.high >= goal.confirmation.detect


def is_unanswered(study: Study, change: Change) -> bool:
    """This change of the present configuration was lost to a fault, and was asked for once only.

    A fault says nothing about a configuration, so it must not cost a night its best idea; twice is no accident.
    """
    key, here = novelty_key(change), study.incumbent.fingerprint()
    cards = [c for c in study.cards.values() if c.parent_fingerprint == here and novelty_key(c.draft.change) == key]
    return 0 < len(cards) < ASKED_TWICE and all(_was_lost(study, card.digest) for card in cards)


def _was_lost(study: Study, card_digest: str) -> bool:
    closed = study.closed.get(card_digest)
    return closed is not None and closed.classification.route is Route.ORCHESTRATION_FAULT


def new_evidence(study: Study, refutation: Refutation, figures: Mapping[str, float | None]) -> tuple[str, ...]:
    """The figures that differ materially from those under which the change was refuted, most changed first."""
    then = figures_before(study, refutation.parent_fingerprint, refutation.position)
    changes = {
        name: change
        for name, value in figures.items()
        if value is not None and (change := _change(then.get(name), value)) >= MATERIAL
    }
    return tuple(sorted(changes, key=lambda name: (-changes[name], name)))


def _change(then: float | None, now: float) -> float:
    if then is None:
        return 0.0  # not observed then: nothing shows that it changed
    return abs(now - then) / max(abs(then), abs(now), 1e-9)


def retest_refusal(
    study: Study, refutation: Refutation, cited: Iterable[str], figures: Mapping[str, float | None]
) -> str | None:
    """Why the refuted change may not run again; None where it may."""
    # The explanation of a refutation can quote a server's log, so it stays in the ledger.
    what = f"{_text(refutation.key)} was refuted"
    if is_binding(study, refutation):
        return None if is_undecided(study, refutation) else f"{what} on this configuration ({refutation.reason})"
    news = new_evidence(study, refutation, figures)
    if set(news) & set(cited):
        return None
    changed = ", ".join(news[:SHOWN]) or "none"
    return (
        f"{what} under other conditions ({refutation.reason}); "
        f"a retest cites a figure that has changed since: {changed}"
    )


def _text(key: NoveltyKey) -> str:
    return f"{key.path} = {key.to_value}" + (f" with {_text(key.also)}" if key.also is not None else "")
