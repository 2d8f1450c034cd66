"""The opponents, each given the starting configuration as its first launch: random, TPE, and one change at a time.

One observation per launch and no repeats, as such tools do. What each would ship is its final pick.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field

from experiments.bottleneck import find_walls
from experiments.card import Wall
from experiments.knob import Knob
from experiments.serving_config import Path, ServingConfig, Value
from experiments.trial import TrialLoad, TrialRecord
from tests.bench.planner.pool import BenchPool, objective_of

KEEP_BEYOND = 1.01  # a one-change search keeps what is more than a percent better, on one run


@dataclass(kw_only=True)
class Session:
    """One study of one strategy. `picks[i]` is what would be shipped after launch i + 1."""

    picks: list[ServingConfig] = field(default_factory=list)
    infeasible: int = 0
    duplicates: int = 0
    repeats: int = 0
    faults: int = 0
    cards: dict[str, int] = field(default_factory=dict)  # by proposer, where there is one
    keeps: int = 0

    @property
    def launches(self) -> int:
        return len(self.picks)


@dataclass(kw_only=True)
class Launcher:
    """Runs one configuration after another, and remembers the best."""

    pool: BenchPool
    launches: int
    chance: random.Random
    session: Session = field(default_factory=Session)
    _seen: set[str] = field(default_factory=set)

    @property
    def is_over(self) -> bool:
        return self.session.launches >= self.launches

    def run(self, config: ServingConfig, pick: ServingConfig) -> TrialRecord:
        """`pick`: what would be shipped if this launch were the last one before its result is known."""
        goal, formal = self.pool.goal, self.pool.goal.scenario.load
        load = TrialLoad(
            requests=goal.screening.requests, concurrency=formal.concurrency, rate=formal.rate, cache="zero"
        )
        record = self.pool.run(config, load, f"t{self.session.launches + 1:03d}", self.chance)
        if record.configuration_caused:
            self.session.infeasible += 1
        elif config.fingerprint() in self._seen:
            self.session.duplicates += 1
        self.session.faults += record.failure is not None and not record.configuration_caused
        self._seen.add(config.fingerprint())
        self.session.picks.append(pick)
        return record

    def score(self, config: ServingConfig, pick: ServingConfig) -> float:
        return objective_of(self.run(config, pick), self.pool.goal) or 0.0


def run_random(pool: BenchPool, launches: int, chance: random.Random) -> Session:
    def configs() -> Iterator[ServingConfig]:
        while True:
            yield _with(pool.starting, {k.path: chance.choice(k.candidates()) for k in pool.goal.space.knobs})

    return _best_of(pool, launches, chance, configs())


def run_tpe(pool: BenchPool, launches: int, chance: random.Random) -> Session:
    """Optuna's TPE with its defaults; a launch that fails or breaks a limit counts as 0, as in the first replay."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=chance.randrange(10**9)))
    knobs = pool.goal.space.knobs
    launcher = Launcher(pool=pool, launches=launches, chance=chance)
    study.enqueue_trial({str(k.path): k.candidates().index(k.current(pool.starting)) for k in knobs})
    best, pick = -1.0, pool.starting
    while not launcher.is_over:
        trial = study.ask()
        places = {k: trial.suggest_categorical(str(k.path), list(range(len(k.candidates())))) for k in knobs}
        config = _with(pool.starting, {k.path: k.candidates()[place] for k, place in places.items()})
        score = launcher.score(config, pick)
        study.tell(trial, score)
        if score > best:
            best, pick = score, config
            launcher.session.picks[-1] = pick
    return launcher.session


def run_one_change(pool: BenchPool, launches: int, chance: random.Random) -> Session:
    """A random single change of the incumbent; kept on one run that is more than a percent better."""
    return _climb(pool, launches, chance, by_role=False)


def run_one_change_by_role(pool: BenchPool, launches: int, chance: random.Random) -> Session:
    """The same on the slower role only, with two changes at once where no single one is left."""
    return _climb(pool, launches, chance, by_role=True)


def _best_of(pool: BenchPool, launches: int, chance: random.Random, configs: Iterator[ServingConfig]) -> Session:
    launcher = Launcher(pool=pool, launches=launches, chance=chance)
    best, pick, config = -1.0, pool.starting, pool.starting
    while not launcher.is_over:
        score = launcher.score(config, pick)
        if score > best:
            best, pick = score, config
            launcher.session.picks[-1] = pick
        config = next(configs)
    return launcher.session


def _climb(pool: BenchPool, launches: int, chance: random.Random, *, by_role: bool) -> Session:
    launcher = Launcher(pool=pool, launches=launches, chance=chance)
    record = launcher.run(pool.starting, pool.starting)
    at, score = pool.starting, objective_of(record, pool.goal) or 0.0
    seen = {at.fingerprint()}
    role = _slower_role(record)
    while not launcher.is_over:
        moves = _unseen(pool, at, role if by_role else None, seen, pairs=by_role)
        if not moves:
            break
        config = chance.choice(moves)
        seen.add(config.fingerprint())
        record = launcher.run(config, at)
        found = objective_of(record, pool.goal) or 0.0
        if found > score * KEEP_BEYOND:
            at, score, role = config, found, _slower_role(record)
            launcher.session.picks[-1] = at
    while not launcher.is_over:
        launcher.session.picks.append(at)  # it has stopped by itself
    return launcher.session


def _unseen(
    pool: BenchPool, at: ServingConfig, role: str | None, seen: set[str], *, pairs: bool
) -> list[ServingConfig]:
    """Single changes of one role, or of any; pairs of them only where no single one is left."""
    knobs = [k for k in pool.goal.space.knobs if role is None or k.role == role]
    singles = _changed(at, knobs)
    new = [c for c in singles if c.fingerprint() not in seen]
    if new or not pairs:
        return new
    return [c for single in singles for c in _changed(single, knobs) if c.fingerprint() not in seen]


def _changed(at: ServingConfig, knobs: list[Knob]) -> list[ServingConfig]:
    return [at.with_value(k.path, v) for k in knobs for v in k.candidates() if v != k.current(at)]


def _slower_role(record: TrialRecord) -> str | None:
    if record.evidence is None:
        return None
    walls = {wall.wall for wall in find_walls(record.evidence.figures())}
    if Wall.PREFILL_SUPPLY in walls:
        return "prefill"
    return "decode" if Wall.DECODE_BATCH in walls else None


def _with(config: ServingConfig, values: dict[Path, Value]) -> ServingConfig:
    for path, value in values.items():
        config = config.with_value(path, value)
    return config
