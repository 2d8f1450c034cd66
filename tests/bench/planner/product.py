"""The product as a strategy: real ledger entries, packet, chain, admission, agenda and verdict; a launch is a trial.

Only the executor is replaced, at its border: a `TrialRecord` comes from the pool of the benchmark.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from agent.planner.chain import choose_card
from agent.planner.evidence import assemble_packet
from agent.planner.port import Proposer
from experiments.agenda import Close, Measure, Propose, Stop, next_step
from experiments.ledger import LedgerEntry, StopReason, StudyOpened, StudyStopped, TrialFinished, TrialStarted
from experiments.serving_config import ServingConfig
from experiments.study import Study, extend, fold
from experiments.verdict import entries_of_phase
from tests.bench.planner.pool import BenchPool
from tests.bench.planner.strategies import Session

EVENING = datetime(2026, 12, 1, 20, 0, tzinfo=UTC)
TRIAL_TIME = timedelta(minutes=8)


@dataclass(kw_only=True)
class ProductSession:
    pool: BenchPool
    launches: int
    chance: random.Random
    suggesters: Sequence[Proposer]
    planner: Proposer | None = None
    session: Session = field(default_factory=Session)
    entries: list[LedgerEntry] = field(default_factory=list)
    now: datetime = EVENING
    _study: Study = field(init=False)

    def run(self) -> Session:
        opened = StudyOpened(
            at=self.now,
            study_id=f"bench-{self.chance.randrange(10**9)}",
            goal=self.pool.goal,
            scenario_digest=self.pool.goal.scenario.digest(),
            pool="bench",
            cards=16,
            simulated=True,
            starting=self.pool.starting,
        )
        self._study = fold([opened])
        self.entries.append(opened)
        while self._study.stopped is None:
            for entry in self._answer(next_step(self._study, self.now)):
                extend(self._study, [entry])
                self.entries.append(entry)
        self._count()
        return self.session

    @property
    def study(self) -> Study:
        return self._study

    def _answer(self, step: object) -> Iterator[LedgerEntry]:
        match step:
            case Propose():
                yield from self._propose()
            case Measure():
                yield from self._measure(step)
            case Close():
                yield from entries_of_phase(step.card, step.tier, step.decided, self.now)
                self.session.picks[-1] = self._study.incumbent
            case Stop():
                yield StudyStopped(at=self.now, reason=step.reason, detail=step.detail)
            case _:
                raise AssertionError(f"nothing here holds or is evaluated: {step}")

    def _propose(self) -> Iterator[LedgerEntry]:
        packet = assemble_packet(self._study, self.now, allowed_costs=("hot", "restart"))
        choice = choose_card(
            self._study,
            packet,
            suggesters=self.suggesters,
            planner=self.planner,
            objections=lambda _: (),
            at=self.now,
        )
        yield from choice.entries
        if choice.card is None:
            yield StudyStopped(at=self.now, reason=StopReason.NO_CANDIDATE, detail="; ".join(choice.notes))

    def _measure(self, step: Measure) -> Iterator[LedgerEntry]:
        trial_id = f"t{len(self._study.trials) + 1:03d}"
        yield TrialStarted(
            at=self.now,
            trial_id=trial_id,
            tier=step.tier,
            card_digest=None if step.card is None else step.card.digest,
            config=step.config,
            load=step.load,
            why=step.why,
        )
        record = self.pool.run(step.config, step.load, trial_id, self.chance)
        self.now += TRIAL_TIME
        yield TrialFinished(at=self.now, record=record)
        self.session.picks.append(self._study.incumbent)

    def _count(self) -> None:
        seen: set[str] = set()
        session, study = self.session, self._study
        for trial in study.trials.values():
            record, fingerprint = trial.record, trial.started.config.fingerprint()
            if record is not None and record.configuration_caused:
                session.infeasible += 1
            elif record is not None and record.failure is not None:
                session.faults += 1
            elif fingerprint in seen:
                session.repeats += 1
            seen.add(fingerprint)
        for card in study.cards.values():
            session.cards[card.draft.source] = session.cards.get(card.draft.source, 0) + 1
        session.keeps = len(study.kept)
        session.picks += [study.incumbent] * (self.launches - len(session.picks))


def run_product(
    pool: BenchPool,
    launches: int,
    chance: random.Random,
    suggesters: Sequence[Proposer],
    planner: Proposer | None = None,
) -> ProductSession:
    session = ProductSession(pool=pool, launches=launches, chance=chance, suggesters=suggesters, planner=planner)
    session.run()
    return session


def worth_of(pool: BenchPool, pick: ServingConfig) -> float:
    return pool.worth(pick) / pool.optimum
