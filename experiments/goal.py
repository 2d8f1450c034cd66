"""The goal of a study: objective, constraints, scenario, search space, budgets and rules of judgement.

Read from `goal.yaml` and frozen with the study: nothing in it is ever changed by a proposal. Rules across
fields are checked here, so that a goal which could never be decided is refused before a machine is touched.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from experiments.baseline import parse_baseline as parse_baseline
from experiments.document import parse_document
from experiments.errors import InputError
from experiments.knob import Knobs, SearchSpace
from experiments.measurement import WindowKind
from experiments.metric import metric
from experiments.objective import Constraint, Objective
from experiments.scalar import kind_of, shown
from experiments.scenario import Scenario
from experiments.schema import FieldError, Int, Line, Real, Strict, Switch, validate
from experiments.serving_config import Kind, Path, Role, ServingConfig, Value
from experiments.statistics import GIVE_UP_SCREENING

CONCURRENCY = Path(Role.CLIENT, Kind.CLIENT, "concurrency")
RATE = Path(Role.CLIENT, Kind.CLIENT, "rate")


class WindowFloor(Strict):
    """The least that a window must hold to count (the project's floor: 128 requests and 60 s)."""

    requests: Int = Field(default=128, ge=1)
    seconds: Real = Field(default=60, ge=0)


class Screening(Strict):
    """The short run that sorts out candidates. Its results are compared with one another only."""

    requests: Int = Field(ge=1)
    window: WindowKind = WindowKind.WHOLE
    repeats: Int = Field(default=2, ge=1, le=10)  # at most so many runs of one card
    # One-sided probability with which a worthwhile gain has to be excluded before a card is given up. A night of few
    # launches and large effects takes less: what is lost is the smallest of the worthwhile gains.
    give_up: Real = Field(default=GIVE_UP_SCREENING, gt=0.5, lt=1)


class Confirmation(Strict):
    """Interleaved formal runs of incumbent and challenger: as many pairs as the noise asks for, within these bounds.

    `detect` is the relative gain that the number of pairs is planned for. A larger one needs fewer pairs than planned.
    """

    pairs_min: Int = Field(default=2, ge=1, le=50)
    pairs_max: Int = Field(default=28, ge=1, le=100)
    detect: Real = Field(default=0.02, gt=0, le=1)

    @model_validator(mode="after")
    def _ordered(self) -> Confirmation:
        if self.pairs_max < self.pairs_min:
            raise FieldError(("pairs_max",), f"{self.pairs_max} is less than pairs_min {self.pairs_min}")
        return self


class NoiseRule(Strict):
    """How run-to-run noise is learned. `assumed` is the relative spread believed before any repeat."""

    repeats: Int = Field(default=3, ge=2, le=20)
    fresh: Int = Field(default=2, ge=1, le=20)  # runs of a newly kept configuration before its first challenger
    assumed: Real = Field(default=0.01, gt=0, le=0.5)


class Sentinel(Strict):
    """The incumbent is measured again after so many closed cards or hours, to see whether the pool has drifted.

    `drifts` shifts are followed with fresh runs; one more stops the study. `None` switches a trigger off.
    """

    cards: Int | None = Field(default=5, ge=1)
    hours: Real | None = Field(default=3, gt=0)
    drifts: Int = Field(default=2, ge=0, le=100)


class Budget(Strict):
    """Where a study stops. Without a token budget no language model is called. Cost in its currency.

    `stop_at_target` ends it once a kept configuration reaches the objective's target, not only where nothing is left.
    `stop_without_model` ends it where no question to the language model is left; else rules and optimizer go on.
    """

    trials: Int = Field(ge=1, le=100_000)
    hours: Real = Field(gt=0, le=24 * 365)
    patience: Int | None = Field(default=None, ge=1)  # cards in a row without a gain; None: until no candidate is left
    llm_tokens: Int = Field(default=0, ge=0)
    llm_cost: Real | None = Field(default=None, ge=0)
    stop_at_target: Switch = False
    stop_without_model: Switch = False

    @model_validator(mode="after")
    def _has_a_model(self) -> Budget:
        if self.stop_without_model and self.llm_tokens == 0:
            raise FieldError(("stop_without_model",), "there is no model to go without: llm_tokens is 0")
        return self


class PlannerRule(Strict):
    """Who may propose, in which order, and how much of it the language model leads.

    `llm_share` is the share of cards on which the model is asked first; it shrinks while its cards fail. While a model
    is used, one card in `control_every` is a random one: the only standing evidence of what the model is worth.
    `optimizer` is the surrogate of the service's parts, or optuna's TPE.
    """

    chain: tuple[Literal["rules", "optimizer", "llm"], ...] = Field(
        default=("rules", "optimizer", "llm"), min_length=1, max_length=3
    )
    optimizer: Literal["surrogate", "tpe"] = "surrogate"
    llm_share: Real = Field(default=0.3, ge=0, le=1)
    control_every: Int | None = Field(default=12, ge=2)

    @field_validator("chain")
    @classmethod
    def _once_each(cls, chain: tuple[str, ...]) -> tuple[str, ...]:
        twice = next((name for place, name in enumerate(chain) if name in chain[:place]), None)
        if twice is not None:
            raise ValueError(f"{twice} is listed twice")
        return chain


class BaselineFile(Strict):
    """The configuration a study starts from: a file beside the goal."""

    file: Line = Field(max_length=1000)


class Score(Strict):
    """The command's own figure: the last match of `pattern` in what it prints, and the least that passes."""

    pattern: Line
    min: Real

    @field_validator("pattern")
    @classmethod
    def _one_group(cls, pattern: str) -> str:
        try:
            groups = re.compile(pattern).groups
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from None
        if groups != 1:
            raise ValueError(f"one group in brackets has to hold the figure; there are {groups}")
        return pattern


class Quality(Strict):
    """An evaluation after confirmation, on the client's host. `required` makes it a gate of the keep.

    Without a score, exit code 0 is passed and 1 is failed; with one, the figure decides and any other exit code than 0
    is no answer.
    """

    command: tuple[Line, ...] = Field(min_length=1, max_length=200)
    required: Switch
    score: Score | None = None


_SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def _slug(name: str) -> str:
    if not _SLUG.fullmatch(name) or len(name) > 63:
        raise ValueError("a name has lower-case letters, digits and single dashes, at most 63 of them")
    return name


def _known(names: tuple[str, ...]) -> tuple[str, ...]:
    for index, name in enumerate(names):
        try:
            metric(name)
        except ValueError as error:
            raise FieldError((index,), str(error)) from None
        if name in names[:index]:
            raise FieldError((index,), f"{name} is listed twice")
    return names


class Goal(Strict):
    """`native_rule` names the version of AISBench's steady-window rule that the native window follows.

    `confidence` is that of every interval, and of all looks at one comparison together; an effect below `min_effect`
    (relative) is not worth a change.
    """

    name: Annotated[str, AfterValidator(_slug)]
    scenario: Scenario
    objective: Objective
    window_floor: WindowFloor = WindowFloor()
    constraints: tuple[Constraint, ...] = Field(default=(), max_length=50)
    report: Annotated[tuple[str, ...], AfterValidator(_known)] = ()
    screening: Screening
    confirmation: Confirmation = Confirmation()
    noise: NoiseRule = NoiseRule()
    sentinel: Sentinel = Sentinel()
    confidence: Real = Field(default=0.95, ge=0.5, lt=1)
    min_effect: Real = Field(default=0.01, ge=0, le=1)
    budget: Budget
    planner: PlannerRule = PlannerRule()
    baseline: BaselineFile
    knobs: Knobs
    quality: Quality | None = None
    native_rule: Literal["aisbench-2026-08", "aisbench-2025-12"] = "aisbench-2026-08"

    @cached_property
    def space(self) -> SearchSpace:
        return SearchSpace(knobs=self.knobs)

    @model_validator(mode="after")
    def _loads_agree(self) -> Goal:
        load, floor = self.scenario.load, self.window_floor
        if self.screening.requests > load.requests:
            raise FieldError(
                ("screening", "requests"),
                f"{self.screening.requests} is more than the {load.requests} of scenario.load.requests",
            )
        if load.requests < floor.requests:
            raise FieldError(
                ("scenario", "load", "requests"),
                f"{load.requests} is less than window_floor.requests {floor.requests}: no window could count",
            )
        return self

    @model_validator(mode="after")
    def _windows_exist(self) -> Goal:
        if self.scenario.load.client == "bench_serving":
            for part, window in (("objective", self.objective.window), ("screening", self.screening.window)):
                if window is not WindowKind.WHOLE:
                    raise FieldError(
                        (part, "window"),
                        f"bench_serving records no start times, so there is no {window} window;"
                        " write whole, or use the client aisbench",
                    )
        return self

    @model_validator(mode="after")
    def _constraints_agree(self) -> Goal:
        seen: dict[tuple[str, str], int] = {}
        for index, constraint in enumerate(self.constraints):
            side = "lower" if constraint.bound.is_lower else "upper"
            earlier = seen.setdefault((constraint.metric, side), index)
            if earlier != index:
                raise FieldError(("constraints", index), f"constraints[{earlier}] already limits {constraint.metric}")
        return self

    @model_validator(mode="after")
    def _knobs_fit(self) -> Goal:
        wrong = {"pd": (Role.MIXED,), "mixed": (Role.PREFILL, Role.DECODE, Role.BOTH)}[self.scenario.deployment]
        for index, knob in enumerate(self.knobs):
            if knob.role in wrong:
                raise FieldError(
                    ("knobs", index, "role"),
                    f"deployment: {self.scenario.deployment} has no role {knob.role}",
                )
            if knob.path == CONCURRENCY:
                self._refuse_concurrency(index)
        return self

    def _refuse_concurrency(self, index: int) -> None:
        knob = self.knobs[index]
        most = max(v for v in knob.candidates() if isinstance(v, int))
        if most > self.screening.requests:
            raise FieldError(
                ("knobs", index, "range" if knob.range else "values"),
                f"{most} can never be in flight with the {self.screening.requests} requests of screening",
            )


def parse_goal(text: str | bytes, file: str) -> Goal:
    return validate(parse_document(text, file), Goal)


def starting_config(goal: Goal, baseline: ServingConfig) -> ServingConfig:
    """The baseline with the client's C and r. N is no setting: it belongs to the tier of a trial.

    A whole number where a knob has real ones is made real: a change is a change of value, not of spelling.
    Raises InputError where the baseline does not serve what the scenario deploys.
    """
    _check_roles(goal, baseline)
    load = goal.scenario.load
    config = baseline.with_value(CONCURRENCY, load.concurrency).with_value(RATE, load.rate)
    return ServingConfig(settings={key: _as_knob(goal, key, value) for key, value in config.settings.items()})


def _check_roles(goal: Goal, baseline: ServingConfig) -> None:
    deployment = goal.scenario.deployment
    served = {Path.parse(key).role for key in baseline.settings} - {Role.ROUTER, Role.CLIENT}
    needed = {Role.PREFILL, Role.DECODE} if deployment == "pd" else {Role.MIXED}
    if served != needed:
        wanted, found = " and ".join(sorted(needed)), " and ".join(sorted(served)) or "no server"
        message = f"deployment: {deployment} needs settings of {wanted}; this file has those of {found}"
        raise InputError(goal.baseline.file, 0, 0, message)


def _as_knob(goal: Goal, key: str, value: Value) -> Value:
    knob = goal.space.writer(Path.parse(key))
    example = next((v for v in knob.candidates() if v is not None), None) if knob is not None else None
    if example is None or type(value) is type(example):
        return value
    if isinstance(example, float) and type(value) is int:
        return float(value)
    message = f"{key} is {kind_of(value)} here ({shown(value)}), its knob has {kind_of(example)}"
    raise InputError(goal.baseline.file, 0, 0, message)
