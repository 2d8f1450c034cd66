"""A study driven step by step: the agenda says what is next, the test says how that ends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from experiments.agenda import Close, Continue, Evaluate, Hold, Measure, Propose, Step, Stop, next_step
from experiments.card import Card, CardDraft
from experiments.goal import Goal
from experiments.ledger import (
    CardAdmitted,
    LedgerEntry,
    QualityEvaluated,
    QualityOutcome,
    StudyStopped,
    TrialFinished,
    TrialHeld,
    TrialStarted,
)
from experiments.measurement import Measurement, WindowKind
from experiments.study import Study, extend, fold
from experiments.trial import Reason, Sent, Stage, StageFault, TrialRecord
from experiments.verdict import entries_of_phase
from tests.factories import EVENING, Performance, a_card, a_draft, a_fault, a_goal, a_measurement, an_opening

START = 179.04  # tok/s/card of the baseline
OUT_OF_MEMORY = a_fault(Stage.READY, Reason.LAUNCH, detail="decode ran out of device memory while loading")


def the_goal(**changes: object) -> Goal:
    """The shipped goal; `changes` replace fields, a dict replaces fields of a part."""
    goal = a_goal()
    made = goal.model_copy(
        update={
            name: getattr(goal, name).model_copy(update=value) if isinstance(value, dict) else value
            for name, value in changes.items()
        }
    )
    made.__dict__.pop("space", None)  # derived from the knobs that may just have been replaced
    return made


@dataclass(kw_only=True)
class Script:
    goal: Goal = field(default_factory=the_goal)
    entries: list[LedgerEntry] = field(default_factory=list)
    now: datetime = EVENING
    study: Study = field(init=False)

    def __post_init__(self) -> None:
        opening = an_opening(self.goal)
        self.entries.append(opening)
        self.study = fold([opening])

    def add(self, *entries: LedgerEntry) -> Script:
        extend(self.study, entries)
        self.entries += entries
        return self

    def next(self) -> Step:
        return next_step(self.study, self.now)

    def measure(self) -> Measure:
        step = self.next()
        assert isinstance(step, Measure), step
        return step

    def start(self, trial_id: str | None = None) -> str:
        """Begin the next trial and leave it open."""
        step = self.measure()
        trial_id = trial_id or f"t{len(self.study.trials) + 1:03d}"
        digest = None if step.card is None else step.card.digest
        self.add(
            TrialStarted(
                at=self.now,
                trial_id=trial_id,
                tier=step.tier,
                card_digest=digest,
                config=step.config,
                load=step.load,
                why=step.why,
            )
        )
        return trial_id

    def run(self, *values: float, **performance: float) -> Script:
        """So many trials with these output rates per card; every other figure from `performance`."""
        for value in values:
            requests = self.measure().load.requests
            made = a_measurement(Performance(per_card=value, **performance), requests=requests)
            self.finish(made)
        return self

    def finish(self, measurement: Measurement, *, build: str | None = "0.5.16") -> Script:
        trial_id = self.start()
        self.now += timedelta(minutes=4)
        record = TrialRecord(trial_id=trial_id, measurement=measurement, sent=Sent.FINISHED, server_version=build)
        return self.add(TrialFinished(at=self.now, record=record))

    def fail(self, fault: StageFault | None = None, *, times: int = 1, configuration_caused: bool = False) -> Script:
        fault = fault or a_fault()
        for _ in range(times):
            trial_id = self.start()
            self.now += timedelta(minutes=1)
            record = TrialRecord(
                trial_id=trial_id, failure=fault, sent=fault.sent, configuration_caused=configuration_caused
            )
            self.add(TrialFinished(at=self.now, record=record))
        return self

    def hold(self) -> Script:
        trial_id = self.start()
        detail = "the client host restarted; look for its details file"
        return self.add(TrialHeld(at=self.now, trial_id=trial_id, stage=Stage.MEASURE, detail=detail))

    def baseline(self, *values: float) -> Script:
        """The formal run and the three short ones, by default all the same."""
        return self.run(*(values or (START,) * 4))

    def card(self, draft: CardDraft | None = None, *, number: int | None = None) -> Script:
        """Admit a card of the present incumbent: by default prefill-max-requests up by one."""
        now = self.study.incumbent.settings["prefill.flag.prefill-max-requests"]
        assert isinstance(now, int)
        draft = draft or a_draft("prefill.flag.prefill-max-requests", now, now + 1)
        made = a_card(draft, number=number or len(self.study.cards) + 1, parent=self.study.incumbent)
        return self.add(CardAdmitted(at=self.now, card=made))

    def close(self) -> Script:
        step = self.next()
        assert isinstance(step, Close), step
        return self.add(*entries_of_phase(step.card, step.tier, step.decided, self.now))

    def screened(self, value: float = START * 1.3) -> Script:
        """A card that one short run finds promising."""
        return self.run(value).close()

    def keep(self, value: float = START * 1.3) -> Script:
        """Baseline where it is due, a card, and its way to a keep in clear figures: C I C I."""
        incumbent = self.value_of_incumbent()
        while isinstance(self.next(), Measure):
            self.run(incumbent)
        self.card().run(value).close()
        return self.run(value, incumbent, value, incumbent).close()

    def value_of_incumbent(self) -> float:
        for trial in reversed(self.study.trials.values()):
            if trial.sample is not None and trial.sample.fingerprint == self.study.incumbent.fingerprint():
                window = trial.sample.measurement.window(WindowKind.NATIVE)
                assert window is not None
                assert window.output_tok_s_per_card is not None
                return window.output_tok_s_per_card
        return START

    def evaluate(self, outcome: QualityOutcome, detail: str = "accuracy 0.91, the baseline has 0.91") -> Script:
        step = self.next()
        assert isinstance(step, Evaluate), step
        entry = QualityEvaluated(at=self.now, card_digest=step.card.digest, outcome=outcome, detail=detail)
        return self.add(entry)

    def refute(self, times: int = 1) -> Script:
        """So many cards that one short run finds clearly slower."""
        for _ in range(times):
            now = self.study.incumbent.settings["decode.flag.max-running-requests"]
            value = 200 + len(self.study.cards)
            self.card(a_draft("decode.flag.max-running-requests", now, value)).run(START * 0.5).close()
        return self

    def stop(self) -> Script:
        step = self.next()
        assert isinstance(step, Stop), step
        return self.add(StudyStopped(at=self.now, reason=step.reason, detail=step.detail))

    def wait(self, hours: float) -> Script:
        self.now += timedelta(hours=hours)
        return self

    @property
    def open_card(self) -> Card:
        assert self.study.open_card is not None
        return self.study.open_card

    @property
    def told(self) -> str:
        return told(self.next())


def told(step: Step) -> str:
    """A step in a few words, for a table."""
    match step:
        case Measure():
            return f"{step.tier} {'incumbent' if step.card is None else 'challenger'} N{step.load.requests}"
        case Close():
            found = step.decided.classification
            return f"close {step.tier}: {found.route} {found.reason}"
        case Continue():
            return f"continue {step.trial_id}"
        case Propose():
            return "propose"
        case Evaluate():
            return f"evaluate {step.card.name}"
        case Hold():
            return f"hold {step.trial_id}"
        case Stop():
            return f"stop: {step.reason}"


def arms(entries: list[LedgerEntry], formal: int = 640) -> Iterator[str]:
    """The order of the formal runs after the baseline's: I for the incumbent, C for the challenger."""
    started = [e for e in entries if isinstance(e, TrialStarted) and e.load.requests == formal]
    for entry in started[1:]:
        yield "I" if entry.card_digest is None else "C"
