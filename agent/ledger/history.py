"""The folded study as a reviewer walks through it: card by card, and the runs of what each was compared with."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from agent.ledger.document import PageLink
from experiments.card import Card
from experiments.comparison import Comparison
from experiments.ledger import CardAdmitted, CardClosed, ConfigurationKept, LedgerEntry, TrialsClassified
from experiments.loop_figures import StageCost, stage_costs
from experiments.measurement import WindowKind
from experiments.serving_config import ServingConfig
from experiments.study import Study, TrialState, fold
from experiments.trial import Stage, StageFault, Tier, TrialRecord

START = "start"  # the name of the configuration that a study begins with
START_PAGE = "cards/start"

_NOT_ANCHOR = re.compile(r"[^A-Za-z0-9_-]+")


@dataclass(kw_only=True)
class Attempt:
    """One card with all that the ledger knows about it."""

    card: Card
    name: str  # of the card, or one without its value where that may not be shown
    admitted_at: datetime
    trials: list[TrialState] = field(default_factory=list)
    phases: dict[Tier, TrialsClassified] = field(default_factory=dict)
    closed: CardClosed | None = None
    kept: ConfigurationKept | None = None

    @property
    def page(self) -> str:
        return f"cards/{self.name}"

    def comparison(self, tier: Tier) -> Comparison | None:
        phase = self.phases.get(tier)
        return None if phase is None else phase.classification.comparison


@dataclass(frozen=True, kw_only=True)
class Incident:
    """A fault with the trial that it belongs to."""

    trial: TrialState
    fault: StageFault
    ended_trial: bool


@dataclass(frozen=True, kw_only=True)
class History:
    """Everything a page is made of. `names` gives the card (or `start`) that a configuration goes by."""

    entries: Sequence[LedgerEntry]
    study: Study
    attempts: tuple[Attempt, ...]
    names: dict[str, str]
    pages: dict[str, str]  # of each trial
    incumbent_runs: dict[str, list[TrialState]]  # trials without a card, by the name of their configuration

    @property
    def simulated(self) -> bool:
        return self.study.opened.simulated

    def attempt(self, card_digest: str | None) -> Attempt | None:
        return None if card_digest is None else self._by_digest.get(card_digest)

    @cached_property
    def _by_digest(self) -> dict[str, Attempt]:
        return {attempt.card.digest: attempt for attempt in self.attempts}

    def name_of(self, config: ServingConfig) -> str:
        return self.names.get(config.fingerprint(), config.fingerprint())

    def trial_link(self, trial_id: str) -> PageLink:
        """To the trial on its card's page. `t006` of `night-1-t006`: within one study the rest is the same."""
        text = trial_id.removeprefix(f"{self.study.study_id}-") or trial_id
        return PageLink(text, self.pages[trial_id], trial_anchor(trial_id))

    def evidence_run(self, fingerprint: str, before: datetime) -> TrialState | None:
        """The newest run of a configuration that had shown evidence by this time."""
        runs = self._evidence_runs.get(fingerprint, [])
        count = bisect_right(runs, before, key=lambda run: run.finished_at or before)
        return runs[count - 1] if count else None

    @cached_property
    def _evidence_runs(self) -> dict[str, list[TrialState]]:
        found: dict[str, list[TrialState]] = defaultdict(list)
        for trial in self.study.trials.values():
            if trial.record is not None and trial.record.evidence is not None:
                found[fingerprint_of(trial)].append(trial)
        return dict(found)

    def observations(self, trial: TrialState) -> dict[str, int]:
        """How many observations stand behind each figure of a run's evidence."""
        known = self._observations.get(trial.started.trial_id)
        if known is None:
            evidence = None if trial.record is None else trial.record.evidence
            known = {} if evidence is None else evidence.observations()
            self._observations[trial.started.trial_id] = known
        return known

    @cached_property
    def _observations(self) -> dict[str, dict[str, int]]:
        return {}

    @cached_property
    def stage_costs(self) -> tuple[StageCost, ...]:
        """Wall time by stage: the pages and the JSON both show it."""
        return stage_costs(self.study)

    def incidents(self) -> list[Incident]:
        """Every fault that is not the configuration's own doing, in order."""
        found = []
        for trial in self.study.trials.values():
            if trial.record is None:
                continue
            failure = trial.record.failure
            found += [Incident(trial=trial, fault=f, ended_trial=False) for f in earlier_faults(trial.record)]
            if failure is not None and not trial.record.configuration_caused:
                found.append(Incident(trial=trial, fault=failure, ended_trial=True))
        return found


def public_name(card: Card, redact: Callable[[str], str]) -> str:
    """The card's name goes into file names and links, where nothing can be blanked out: there its digest stands in."""
    shown = [card.name, *(str(part.to_value) for part in card.draft.change.parts)]
    if all(redact(text) == text for text in shown):
        return card.name
    return f"c{card.number:02d}-{card.digest[:12]}"


def earlier_faults(record: TrialRecord) -> list[StageFault]:
    """The faults that did not end the trial. The one that did may be among them under another reason.

    Where the configuration ended it, its earlier attempts at that stage were its own doing as well.
    """
    failure = record.failure
    if failure is None:
        return list(record.faults)
    if record.configuration_caused:
        return [fault for fault in record.faults if fault.stage is not failure.stage]
    return [fault for fault in record.faults if (fault.stage, fault.attempt) != (failure.stage, failure.attempt)]


def gather(entries: Sequence[LedgerEntry], redact: Callable[[str], str] = str) -> History:
    """Fold the entries and sort them by card, in one pass each. `redact` decides which names may be shown."""
    return gather_folded(fold(entries), entries, redact)


def gather_folded(study: Study, entries: Sequence[LedgerEntry], redact: Callable[[str], str] = str) -> History:
    """As `gather`, for a reader that keeps the fold and extends it: `study` must be the fold of these entries."""
    attempts: dict[str, Attempt] = {}
    for entry in entries:
        match entry:
            case CardAdmitted():
                attempts[entry.card.digest] = Attempt(
                    card=entry.card, name=public_name(entry.card, redact), admitted_at=entry.at
                )
            case TrialsClassified(card_digest=str(digest)):
                attempts[digest].phases[entry.tier] = entry
            case CardClosed():
                attempts[entry.card_digest].closed = entry
            case ConfigurationKept():
                attempts[entry.card_digest].kept = entry
            case _:
                pass
    return _with_trials(entries, study, attempts)


def _with_trials(entries: Sequence[LedgerEntry], study: Study, attempts: dict[str, Attempt]) -> History:
    names = _names(study, attempts)
    pages: dict[str, str] = {}
    incumbent_runs: dict[str, list[TrialState]] = defaultdict(list)
    for trial_id, trial in study.trials.items():
        digest = trial.started.card_digest
        if digest is not None:
            attempts[digest].trials.append(trial)
            pages[trial_id] = attempts[digest].page
            continue
        name = names.get(fingerprint_of(trial), START)
        incumbent_runs[name].append(trial)
        pages[trial_id] = f"cards/{name}"
    return History(
        entries=entries,
        study=study,
        attempts=tuple(attempts.values()),
        names=names,
        pages=pages,
        incumbent_runs=dict(incumbent_runs),
    )


def _names(study: Study, attempts: dict[str, Attempt]) -> dict[str, str]:
    """A configuration goes by the card that first kept it; every other card's by its own name."""
    names = {study.opened.starting.fingerprint(): START}
    for kept in study.kept:
        names.setdefault(kept.config.fingerprint(), attempts[kept.card_digest].name)
    for trial in study.trials.values():
        digest = trial.started.card_digest
        if digest is not None:
            names.setdefault(fingerprint_of(trial), attempts[digest].name)
    return names


def trial_anchor(trial_id: str) -> str:
    return "trial-" + _NOT_ANCHOR.sub("-", trial_id)


def fingerprint_of(trial: TrialState) -> str:
    return trial.sample.fingerprint if trial.sample is not None else trial.started.config.fingerprint()


def measure_attempts(trial: TrialState) -> int:
    record = trial.record
    return 0 if record is None else sum(1 for s in record.stages if s.stage is Stage.MEASURE)


def mean_of(trials: Sequence[TrialState], metric_field: str, kind: WindowKind) -> float | None:
    """The mean over runs of one field of one window; None unless every run has it."""
    values = [value_of(trial, metric_field, kind) for trial in trials]
    observed = [v for v in values if v is not None]
    return sum(observed) / len(observed) if observed and len(observed) == len(values) else None


def value_of(trial: TrialState, metric_field: str, kind: WindowKind) -> float | None:
    if trial.sample is None:
        return None
    window = trial.sample.measurement.window(kind)
    return None if window is None else getattr(window, metric_field)
