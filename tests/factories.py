"""Builders of real documents for tests: goal, configuration, measurement, record, card, a whole synthetic night.

The night is driven by the product's own agenda and verdict, so its entries are the ones that a study writes.
Its numbers come from a small table, not from a model of serving, and are marked as simulated.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache

from experiments.agenda import Close, Continue, Hold, Measure, Propose, Stop, next_step
from experiments.card import Card, CardDraft, EvidenceRef, Prediction, Source, Wall
from experiments.classification import classify_effect
from experiments.comparison import Comparison
from experiments.evidence import DecodeEvidence, Depth, Figure, PrefillEvidence, ServingEvidence
from experiments.goal import Goal, parse_goal, starting_config
from experiments.knob import Cost
from experiments.ledger import (
    CardAdmitted,
    CardClosed,
    CardRejected,
    Finding,
    LedgerEntry,
    OperatorSpoke,
    ProposerFailed,
    StopReason,
    StudyOpened,
    StudyStopped,
    TrialFinished,
    TrialHeld,
    TrialResolved,
    TrialsClassified,
    TrialStarted,
)
from experiments.measurement import Check, Measurement, WindowKind, WindowMetrics
from experiments.serving_config import Change, Kind, Path, Role, ServingConfig, Value
from experiments.statistics import Verdict
from experiments.study import Study, extend, fold
from experiments.trial import (
    Artifact,
    Reason,
    Sent,
    Stage,
    StageFault,
    StageTime,
    Tier,
    TrialLoad,
    TrialRecord,
)
from experiments.verdict import entries_of_phase

EVENING = datetime(2026, 12, 1, 20, 0, tzinfo=UTC)
CARDS = 16  # P8+D8

GOAL_YAML = """\
name: flash-16k-zero-cache
scenario:
  model: DeepSeek-V4-Flash-W8A8
  deployment: pd
  input: {body_tokens: 16384, encoded_tokens: 16388, task: copy}
  output_tokens: 1024
  cache: {state: zero}
  load: {client: aisbench, requests: 640, concurrency: 128, rate: 6.0, warmup: 8, seed: 42}
objective: {metric: output_tok_s_per_card, window: native, direction: maximize, target: "> 230"}
constraints: [tpot_mean < 20 ms, failed_requests == 0]
report: [ttft_mean, ttft_p90, e2e_mean]
screening: {requests: 320}
budget: {trials: 40, hours: 10, llm_tokens: 2000000}
baseline: {file: baseline.yaml}
knobs:
  - {role: prefill, flag: prefill-max-requests, values: [1, 2, 3, 4], cost: restart}
  - {role: decode, flag: max-running-requests, values: [64, 96, 128, 160], cost: restart}
  - {role: decode, flag: mem-fraction-static, values: [0.80, 0.85, 0.95], cost: restart}
  - {role: decode, env: SGLANG_ENABLE_COMPACT, values: ["0", "1"], cost: restart, alters_numerics: true}
  - {role: prefill, layout: expert-location, values: [default, scene-16k], cost: restart}
  - {role: client, param: concurrency, range: [32, 160], cost: hot}
"""

BASELINE: dict[str, Value] = {
    "prefill.flag.tp-size": 16,
    "prefill.flag.dp-size": 16,
    "prefill.flag.chunked-prefill-size": 131072,
    "prefill.flag.prefill-max-requests": 1,
    "prefill.layout.expert-location": "default",
    "decode.flag.tp-size": 16,
    "decode.flag.dp-size": 16,
    "decode.flag.max-running-requests": 128,
    "decode.flag.mem-fraction-static": 0.85,
    "decode.env.SGLANG_ENABLE_COMPACT": "0",
    "router.flag.policy": "round_robin",
}


def a_goal(**changes: object) -> Goal:
    """The shipped 16K zero-cache goal; `changes` replace top-level fields."""
    return _shipped_goal().model_copy(update=changes) if changes else _shipped_goal()


@cache
def _shipped_goal() -> Goal:
    return parse_goal(GOAL_YAML, "goal.yaml")


def a_config(**changes: Value) -> ServingConfig:
    """The starting configuration of `a_goal`. Keys of `changes` are paths with `__` for the dots."""
    settings = {**BASELINE, **{key.replace("__", ".").replace("_", "-"): v for key, v in changes.items()}}
    return starting_config(a_goal(), ServingConfig(settings=settings))


def a_load(requests: int = 640, concurrency: int = 128, rate: float | None = 6.0) -> TrialLoad:
    return TrialLoad(requests=requests, concurrency=concurrency, rate=rate, cache="zero")


@dataclass(frozen=True, kw_only=True)
class Performance:
    """What one run reaches, per window: native figures and how much lower the whole run is."""

    per_card: float = 179.04
    whole_share: float = 0.92
    tpot_ms: float = 9.6
    ttft_s: float = 31.2

    def scaled(self, factor: float) -> Performance:
        return Performance(
            per_card=self.per_card * factor,
            whole_share=self.whole_share,
            tpot_ms=self.tpot_ms,
            ttft_s=self.ttft_s / factor,
        )


def a_window(kind: WindowKind, performance: Performance, requests: int) -> WindowMetrics:
    """One window of a run of `requests` requests of 1024 output tokens."""
    native = kind is not WindowKind.WHOLE
    share = 1.0 if native else performance.whole_share
    per_card = performance.per_card * share
    members = round(requests * 0.77) if native else requests
    duration = members * 1024 / (per_card * CARDS)
    e2e = performance.ttft_s * share + performance.tpot_ms * 1.023
    rule = {WindowKind.WHOLE: "whole", WindowKind.NATIVE: "aisbench-2026-08"}.get(kind, "in_window:aisbench-2026-08")
    return WindowMetrics(
        kind=kind,
        rule=rule,
        meets_floor=members >= 128 and duration >= 60,
        n_requests=members,
        duration_s=duration,
        output_tok_s=per_card * CARDS,
        output_tok_s_per_card=per_card,
        request_per_s=members / duration,
        concurrency_mean=members / duration * e2e,
        ttft_mean_s=performance.ttft_s * share,
        ttft_p50_s=performance.ttft_s * share * 0.97,
        ttft_p90_s=performance.ttft_s * share * 1.4,
        ttft_p99_s=performance.ttft_s * share * 1.6,
        tpot_mean_ms=performance.tpot_ms,
        tpot_p50_ms=performance.tpot_ms * 0.99,
        tpot_p90_ms=performance.tpot_ms * 1.1,
        tpot_p99_ms=performance.tpot_ms * 1.3,
        e2e_mean_s=e2e,
        e2e_p90_s=e2e * 1.3,
    )


def a_measurement(
    performance: Performance | None = None,
    *,
    requests: int = 640,
    kinds: Sequence[WindowKind] = tuple(WindowKind),
    simulated: bool = True,
) -> Measurement:
    """A valid run in which every request succeeded."""
    performance = performance or Performance()
    return Measurement(
        client="aisbench",
        client_version="3.1-20260813",
        windows=tuple(a_window(kind, performance, requests) for kind in kinds),
        n_planned=requests,
        n_succeeded=requests,
        n_failed=0,
        input_tokens=requests * 16388,
        output_tokens=requests * 1024,
        cached_tokens=0,
        accept_length=5.7494,
        checks=(
            Check(name="success", passed=True, detail=f"{requests} of {requests} succeeded"),
            Check(name="exact_output_length", passed=True, detail="every output has 1024 tokens"),
            Check(name="zero_cache", passed=True, detail="0 cached tokens"),
            Check(name="garbling", passed=None, detail="the client keeps no texts"),
        ),
        raw_sha256=_sha(f"raw {performance} {requests}"),
        simulated=simulated,
    )


def an_evidence(*, queued: bool = True) -> ServingEvidence:
    """`queued`: prefill requests wait, decode has room, and one-request batches leave lone tails."""
    waiting = Depth(mean=11.2, p50=11.0, p90=19.0, share_positive=0.98, n=212)
    idle = Depth(mean=0.0, p50=0.0, p90=0.0, share_positive=0.0, n=212)
    return ServingEvidence(
        prefill=PrefillEvidence(
            waiting=waiting if queued else idle,
            batches=Figure(value=1920.0, n=1920),
            multi_sequence_share=Figure(value=0.0, n=1920),
            lone_tail_share=Figure(value=1 / 3 if queued else 0.0, n=1920),
            lone_tail_tokens_mean=Figure(value=4.0, n=640),
        ),
        decode=DecodeEvidence(waiting=idle, accept_length=Figure(value=5.7494, n=640)),
        simulated=True,
    )


STAGE_SECONDS: dict[Stage, float] = {
    Stage.CHECK: 0.4,
    Stage.RESERVE: 0.6,
    Stage.PREPARE: 2.1,
    Stage.LAUNCH: 35.0,
    Stage.READY: 204.5,
    Stage.CANARY: 3.2,
    Stage.WARM_UP: 21.0,
    Stage.CACHE: 1.5,
    Stage.MEASURE: 171.0,
    Stage.COLLECT: 2.7,
    Stage.ANALYSE: 1.1,
    Stage.RELEASE: 0.9,
}


def stage_times(began: datetime, until: Stage = Stage.RELEASE) -> tuple[StageTime, ...]:
    """Stages one after another, up to and with `until`."""
    times = []
    for stage, seconds in STAGE_SECONDS.items():
        times.append(StageTime(stage=stage, attempt=1, began=began, seconds=seconds))
        began += timedelta(seconds=seconds)
        if stage is until:
            break
    return tuple(times)


def artifacts_of(trial_id: str) -> tuple[Artifact, ...]:
    return tuple(
        Artifact(name=name, sha256=_sha(f"{trial_id}/{name}"), size=size)
        for name, size in (
            ("details.jsonl", 5_242_880),
            ("prefill.log", 917_504),
            ("server_info.json", 8_192),
        )
    )


def a_record(
    trial_id: str,
    *,
    measurement: Measurement | None = None,
    failure: StageFault | None = None,
    configuration_caused: bool = False,
    faults: tuple[StageFault, ...] = (),
    began: datetime = EVENING,
) -> TrialRecord:
    """A finished trial: `measurement` by default, else the `failure`."""
    if measurement is None and failure is None:
        measurement = a_measurement()
    return TrialRecord(
        trial_id=trial_id,
        measurement=measurement,
        evidence=an_evidence() if measurement is not None else None,
        failure=failure,
        configuration_caused=configuration_caused,
        sent=Sent.FINISHED if failure is None else failure.sent,
        faults=faults,
        stages=stage_times(began, Stage.RELEASE if failure is None else failure.stage),
        artifacts=artifacts_of(trial_id),
        server_version="0.5.16",
    )


def a_fault(
    stage: Stage = Stage.LAUNCH,
    reason: Reason = Reason.TRANSPORT,
    sent: Sent = Sent.NOT_SENT,
    detail: str = "decode: the connection was lost and not restored within 60 s",
    *,
    attempt: int = 1,
    repaired: bool = False,
    repair: str = "",
) -> StageFault:
    return StageFault(
        stage=stage,
        attempt=attempt,
        reason=reason,
        sent=sent,
        detail=detail,
        repaired=repaired,
        repair=repair,
    )


POST_PROCESSING_REPAIRED = a_fault(
    Stage.ANALYSE,
    Reason.POST_PROCESSING,
    Sent.FINISHED,
    "the summary process could not import the payload's module",
    repaired=True,
    repair="read the stored details file again; nothing was sent",
)


def a_draft(
    path: str,
    from_value: Value,
    to_value: Value,
    *,
    wall: Wall = Wall.PREFILL_SUPPLY,
    mechanism: str = "Prefill admits one request per batch, so 4-token tails cost a forward of their own.",
    evidence: tuple[EvidenceRef, ...] = (EvidenceRef(id="prefill.lone_tail_share", value=1 / 3),),
    prediction: tuple[float, float, float] = (0.05, 0.35, 0.7),
    source: Source = Source.RULES,
    tokens: int = 0,
) -> CardDraft:
    at = Path.parse(path)
    low, high, probability = prediction
    return CardDraft(
        change=Change(role=at.role, kind=at.kind, name=at.name, from_value=from_value, to_value=to_value),
        wall=wall,
        mechanism=mechanism,
        evidence=evidence,
        prediction=Prediction(low=low, high=high, probability=probability),
        if_promising="confirm at the formal load and keep",
        if_negative="close this value on this configuration",
        source=source,
        prompt_digest=_sha("prompt") if source is Source.LLM else None,
        tokens=tokens,
    )


def a_card(
    draft: CardDraft | None = None,
    *,
    number: int = 1,
    parent: ServingConfig | None = None,
    cost: Cost = Cost.RESTART,
    alters_numerics: bool = False,
) -> Card:
    draft = draft or a_draft("prefill.flag.prefill-max-requests", 1, 2)
    parent = parent or a_config()
    return Card(
        number=number,
        draft=draft,
        parent=parent,
        parent_fingerprint=parent.fingerprint(),
        scenario_digest=a_goal().scenario.digest(),
        cost=cost,
        alters_numerics=alters_numerics,
    )


def an_opening(goal: Goal | None = None, *, at: datetime = EVENING, simulated: bool = True) -> StudyOpened:
    goal = goal or a_goal()
    return StudyOpened(
        at=at,
        study_id="night-1",
        goal=goal,
        scenario_digest=goal.scenario.digest(),
        pool="a3-pool-1",
        cards=CARDS,
        simulated=simulated,
        starting=a_config(),
    )


# --- a whole night ------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Idea:
    """One card of the script, and what its trials do."""

    draft: CardDraft
    cost: Cost = Cost.RESTART
    alters_numerics: bool = False
    performance: Performance | None = None
    failure: StageFault | None = None
    configuration_caused: bool = False
    repaired: StageFault | None = None  # in its first trial
    held: bool = False  # its trial never comes back


def night_ideas() -> tuple[Idea, ...]:
    """One each: kept, slower, SLO violated, infeasible, no gain, fault, held."""
    c128 = Path(Role.CLIENT, Kind.CLIENT, "concurrency")
    return (
        Idea(
            draft=a_draft(
                "prefill.flag.prefill-max-requests",
                1,
                2,
                evidence=(
                    EvidenceRef(id="prefill.waiting.share_positive", value=0.98),
                    EvidenceRef(id="decode.waiting.mean", value=0.0),
                    EvidenceRef(id="prefill.lone_tail_share", value=1 / 3),
                ),
            ),
            performance=Performance(per_card=236.8268, tpot_ms=9.4, ttft_s=22.7),
            repaired=POST_PROCESSING_REPAIRED,
        ),
        Idea(
            draft=a_draft(
                str(c128),
                128,
                90,
                wall=Wall.CLIENT_SUPPLY,
                mechanism="Fewer requests in flight shorten the queue; throughput may hold.",
                prediction=(-0.06, 0.01, 0.2),
            ),
            cost=Cost.HOT,
            performance=Performance(per_card=224.7, tpot_ms=8.3, ttft_s=14.1),
        ),
        Idea(
            draft=a_draft(
                "decode.flag.max-running-requests",
                128,
                160,
                wall=Wall.DECODE_BATCH,
                mechanism="A larger decode batch raises throughput until the step time meets the limit.",
                prediction=(0.0, 0.05, 0.4),
                source=Source.LLM,
                tokens=1830,
            ),
            performance=Performance(per_card=240.1, tpot_ms=20.7, ttft_s=22.5),
        ),
        Idea(
            draft=a_draft(
                "decode.flag.mem-fraction-static",
                0.85,
                0.95,
                wall=Wall.MEMORY,
                mechanism="More KV space holds more requests.",
                prediction=(0.0, 0.03, 0.2),
                source=Source.OPTIMIZER,
            ),
            failure=a_fault(Stage.READY, Reason.LAUNCH, Sent.NOT_SENT, "decode ran out of device memory while loading"),
            configuration_caused=True,
        ),
        Idea(
            draft=a_draft(
                "decode.env.SGLANG_ENABLE_COMPACT",
                "0",
                "1",
                wall=Wall.DECODE_BATCH,
                mechanism="Compact verification skips slots that cannot be accepted.",
                prediction=(0.01, 0.06, 0.5),
                source=Source.LLM,
                tokens=2110,
            ),
            alters_numerics=True,
            performance=Performance(per_card=236.9, tpot_ms=9.4, ttft_s=22.6),
        ),
        Idea(
            draft=a_draft(
                "prefill.layout.expert-location",
                "default",
                "scene-16k",
                wall=Wall.IMBALANCE,
                mechanism="A layout fitted to this load evens out the prefill ranks.",
                prediction=(0.02, 0.14, 0.5),
            ),
            failure=a_fault(
                Stage.PREPARE,
                Reason.CONTRACT_MISMATCH,
                Sent.NOT_SENT,
                "prefill reports tp 4, the card says tp 16",
            ),
        ),
        Idea(
            draft=a_draft(
                "prefill.flag.prefill-max-requests",
                2,
                3,
                mechanism="A third request per batch may fill what two leave.",
                prediction=(0.0, 0.02, 0.3),
            ),
            held=True,
        ),
    )


@dataclass(kw_only=True)
class Night:
    """Drives a study through the real agenda. `entries` is the ledger that it leaves."""

    goal: Goal = field(default_factory=a_goal)
    ideas: tuple[Idea, ...] = field(default_factory=night_ideas)
    noise: float = 0.004
    simulated: bool = True
    text: str | None = None  # stands in every free text of stages, artifacts and operators
    entries: list[LedgerEntry] = field(default_factory=list)
    now: datetime = EVENING
    _studied: Study | None = None
    _next: int = 0
    _kept: Performance = field(default_factory=Performance)
    _used_repair: bool = False

    def run(self, *, settle_held: bool = False, steps: int = 500) -> list[LedgerEntry]:
        """To the end: a held trial, or with `settle_held` until no idea is left."""
        self._append(an_opening(self.goal, at=self.now, simulated=self.simulated))
        for _ in range(steps):
            step = next_step(self._study, self.now)
            if isinstance(step, Hold) and not settle_held:
                break
            if self._study.stopped is not None:
                break
            for entry in self._answer(step):
                self._append(entry)
        return self.entries

    @property
    def _study(self) -> Study:
        assert self._studied is not None
        return self._studied

    def _append(self, entry: LedgerEntry) -> None:
        if self._studied is None:
            self._studied = fold([entry])
        else:
            extend(self._studied, [entry])
        self.entries.append(entry)

    def _answer(self, step: object) -> Iterator[LedgerEntry]:
        match step:
            case Propose():
                yield from self._propose()
            case Measure():
                yield from self._measure(step)
            case Close():
                yield from entries_of_phase(step.card, step.tier, step.decided, self.now)
                if self._study.kept and self._study.incumbent_card == step.card.digest:
                    self._kept = self._idea(step.card.digest).performance or self._kept
            case Hold():
                yield TrialResolved(
                    at=self.now,
                    trial_id=step.trial_id,
                    finding=Finding.DEAD,
                    by="ops",
                    reason="the host was rebooted; no client process is left",
                )
            case Continue():
                fault = a_fault(
                    Stage.MEASURE, Reason.UNKNOWN_END, Sent.UNKNOWN, "the host was rebooted during the load"
                )
                yield TrialFinished(at=self.now, record=a_record(step.trial_id, failure=fault, began=self.now))
            case Stop():
                yield StudyStopped(at=self.now, reason=step.reason, detail=step.detail)

    def _propose(self) -> Iterator[LedgerEntry]:
        if self._next >= len(self.ideas):
            yield StudyStopped(at=self.now, reason=StopReason.NO_CANDIDATE, detail="every knob value was tried")
            return
        idea = self.ideas[self._next]
        if self._next == 1:
            yield from self._asides()
        self._next += 1
        self.now += timedelta(seconds=12)
        card = a_card(
            idea.draft,
            number=self._next,
            parent=self._study.incumbent,
            cost=idea.cost,
            alters_numerics=idea.alters_numerics,
        )
        yield CardAdmitted(at=self.now, card=card)

    def _asides(self) -> Iterator[LedgerEntry]:
        yield CardRejected(
            at=self.now,
            draft=a_draft("prefill.flag.prefill-max-requests", 2, 9, source=Source.LLM, tokens=940),
            codes=("out_of_bounds",),
            messages=("prefill.flag.prefill-max-requests: 9 is not in 1, 2, 3, 4",),
        )
        yield ProposerFailed(at=self.now, source=Source.LLM, detail="no answer within 60 s", tokens=410)
        yield OperatorSpoke(at=self.now, mode="run", by="ops", reason="until 7", file_digest=_sha("state"))

    def _measure(self, step: Measure) -> Iterator[LedgerEntry]:
        trial_id = f"t{len(self._study.trials) + 1:04d}"
        yield TrialStarted(
            at=self.now,
            trial_id=trial_id,
            tier=step.tier,
            card_digest=None if step.card is None else step.card.digest,
            config=step.config,
            load=step.load,
            why=step.why,
        )
        idea = None if step.card is None else self.ideas[step.card.number - 1]
        if idea is not None and idea.held:
            yield TrialHeld(
                at=self.now,
                trial_id=trial_id,
                stage=Stage.MEASURE,
                detail="the client host restarted while the load ran; look for its details file",
            )
            return
        record = self._record(trial_id, step, idea)
        self.now += timedelta(seconds=sum(s.seconds for s in record.stages))
        yield TrialFinished(at=self.now, record=record)

    def _record(self, trial_id: str, step: Measure, idea: Idea | None) -> TrialRecord:
        if idea is not None and idea.failure is not None:
            return a_record(
                trial_id,
                failure=idea.failure,
                configuration_caused=idea.configuration_caused,
                began=self.now,
            )
        performance = self._kept if idea is None else idea.performance or self._kept
        faults: tuple[StageFault, ...] = ()
        if idea is not None and idea.repaired is not None and not self._used_repair:
            faults, self._used_repair = (idea.repaired,), True
        measured = a_measurement(
            performance.scaled(1 + self.noise * _wobble(trial_id)),
            requests=step.load.requests,
            simulated=self.simulated,
        )
        record = a_record(trial_id, measurement=measured, faults=faults, began=self.now)
        return record if self.text is None else self._worded(record, self.text)

    @staticmethod
    def _worded(record: TrialRecord, text: str) -> TrialRecord:
        assert record.measurement is not None
        check = Check(name=text, passed=False, detail=text)
        return record.model_copy(
            update={
                "stages": tuple(time.model_copy(update={"note": text}) for time in record.stages),
                "artifacts": tuple(a.model_copy(update={"name": text}) for a in record.artifacts),
                "adjusted": (text,),
                "measurement": record.measurement.model_copy(update={"checks": (check,), "client_version": text}),
            }
        )

    def _idea(self, card_digest: str) -> Idea:
        return self.ideas[self._study.cards[card_digest].number - 1]


def a_night(*, settle_held: bool = False, simulated: bool = True) -> list[LedgerEntry]:
    """The ledger of the scripted night: it ends held, or stopped if `settle_held`."""
    return Night(simulated=simulated).run(settle_held=settle_held)


def _wobble(seed: str) -> float:
    """A number between -1 and 1 that depends on the seed alone."""
    return int(_sha(seed)[:8], 16) / 2**31 - 1


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def a_long_study(experiments: int) -> list[LedgerEntry]:
    """Baseline runs and then so many cards, each screened once and closed as slower."""
    goal = a_goal().model_copy(update={"budget": a_goal().budget.model_copy(update={"trials": 100_000})})
    opened = an_opening(goal)
    entries: list[LedgerEntry] = [opened]
    runs = _long_runs()
    now = EVENING
    for number in range(4):
        requests = 640 if number == 0 else 320
        measured = a_measurement(Performance().scaled(1 + 0.002 * number), requests=requests)
        record = a_record(f"b{number:05d}", measurement=measured, began=now)
        entries += a_run(record, None, opened.starting, requests, now)
        now += timedelta(minutes=8)
    for number in range(1, experiments + 1):
        draft = a_draft("decode.flag.max-running-requests", 128, number + 200)
        card = a_card(draft, number=number, parent=opened.starting)
        record = runs[number % len(runs)].model_copy(update={"trial_id": f"t{number:05d}"})
        entries.append(CardAdmitted(at=now, card=card))
        entries += a_run(record, card, card.config, 320, now)
        now += timedelta(minutes=8)
        entries += _closed_as_slower(card, record, now)
    return entries


def _long_runs() -> list[TrialRecord]:
    """Records of different figures, so that a long study is not one number many times."""
    return [
        a_record(
            f"run-{i}",
            measurement=a_measurement(
                Performance(per_card=150 + i % 20, tpot_ms=9 + i % 7 / 10, ttft_s=25 + i % 11), requests=320
            ),
        )
        for i in range(101)
    ]


def a_run(
    record: TrialRecord, card: Card | None, config: ServingConfig, requests: int, at: datetime
) -> list[LedgerEntry]:
    started = TrialStarted(
        at=at,
        trial_id=record.trial_id,
        tier=Tier.BASELINE if card is None else Tier.SCREENING,
        card_digest=None if card is None else card.digest,
        config=config,
        load=a_load(requests),
        why="a run of a long study",
    )
    return [started, TrialFinished(at=at + timedelta(minutes=7), record=record)]


def _closed_as_slower(card: Card, record: TrialRecord, at: datetime) -> list[LedgerEntry]:
    assert record.measurement is not None
    reached = record.measurement.windows[0].output_tok_s_per_card or 0.0
    gain = reached / 164.7 - 1
    comparison = Comparison(
        metric="output_tok_s_per_card",
        window=WindowKind.WHOLE,
        rule="whole",
        incumbent_mean=164.7,
        challenger_mean=reached,
        gain=gain,
        low=gain - 0.02,
        high=gain + 0.02,
        confidence=0.95,
        noise_relative_sd=0.005,
        incumbent_trials=("b00001", "b00002", "b00003"),
        challenger_trials=(record.trial_id,),
    )
    classification = classify_effect(Verdict.LOSS, comparison)
    return [
        TrialsClassified(
            at=at,
            trial_ids=(record.trial_id,),
            tier=Tier.SCREENING,
            card_digest=card.digest,
            classification=classification,
        ),
        CardClosed(at=at, card_digest=card.digest, classification=classification, kept=False),
    ]
