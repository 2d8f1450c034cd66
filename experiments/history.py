"""The history checker: what ledger, journal, hosts and clients say about one study, held against ten invariants. Pure.

It runs after every fault test and as `tuneloop audit`. What could not be asked is said to be unobserved and never
taken to hold.

I1 a formal load starts at most once · I2 what was not sent never started · I3 exit codes and data are what the hosts
have · I4 no number without a valid measurement · I5 nothing is sent after a word that forbade it · I6 every trial is in
one state, with a reason · I7 a kept server is the same process as before · I8 nothing runs after the machines were
given back · I9 no process outside our jobs was touched · I10 the ledger and the hosts' job directories agree
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from experiments.control import Mode
from experiments.ledger import (
    Finding,
    LedgerEntry,
    OperatorSpoke,
    StudyReopened,
    StudyStopped,
    TrialHeld,
    TrialResolved,
    TrialsClassified,
)
from experiments.ports import JournalRow
from experiments.study import Study, TrialState, fold
from experiments.trial import Route, Sent, Stage

DONE = "done"
ENDED, LOST, GONE = "exited", frozenset({"lost", "lost_reboot", "corrupt"}), frozenset({"absent", "fenced"})
LIVE = frozenset({"launching", "running", "unsupervised"})
SENDING = frozenset(
    {Stage.RECORD, Stage.LAUNCH, Stage.CANARY, Stage.WARM_UP, Stage.CACHE, Stage.MEASURE, Stage.EVALUATE}
)


class Invariant(StrEnum):
    """The ten, by the numbers of the protocol's description."""

    ONE_START = "I1"
    UNSENT_NEVER_STARTED = "I2"
    DATA_AS_WRITTEN = "I3"
    NUMBERS_ARE_VALID = "I4"
    NOTHING_AFTER_THE_WORD = "I5"
    ONE_STATE = "I6"
    KEPT_IS_THE_SAME = "I7"
    NOTHING_LEFT = "I8"
    STRANGERS_UNTOUCHED = "I9"
    HOSTS_AGREE = "I10"


@dataclass(frozen=True, kw_only=True)
class HostJob:
    """One job as its host describes it."""

    host: str
    job_id: str
    status: str
    exit_code: int | None = None
    started_boot_s: float | None = None  # on that host's boot clock


@dataclass(frozen=True, kw_only=True)
class Forbidden:
    """A span in which the controller knew that nothing new may be sent, on the hosts' boot clock."""

    since: float
    until: float
    why: str


@dataclass(frozen=True, kw_only=True)
class History:
    """Everything that is known about one study. None: it was not asked or did not answer."""

    entries: Sequence[LedgerEntry]
    rows: Sequence[JournalRow]
    jobs: Mapping[str, Sequence[HostJob]] | None = None  # by host
    starts: Sequence[str] | None = None  # the bench clients' own counter: an id per start
    figures: Mapping[str, Sequence[str]] = field(default_factory=dict)  # trial → stored columns that hold a number
    digests: Mapping[tuple[str, str], str | None] | None = None  # (trial, artifact) → sha256 found; None: no file
    strangers: Mapping[str, bool] | None = None  # a process that is not ours → still the same one
    forbidden: Sequence[Forbidden] = ()
    at_rest: bool = False  # no service drives the study now


@dataclass(frozen=True, kw_only=True)
class Violation:
    invariant: Invariant
    where: str
    detail: str

    def __str__(self) -> str:
        return f"{self.invariant} {self.where}: {self.detail}"


def check_history(history: History) -> tuple[Violation, ...]:
    """Every violation, in the order of the invariants."""
    study = fold(history.entries)
    found: list[Violation] = []
    for invariant, check in _CHECKS.items():
        found += [Violation(invariant=invariant, where=where, detail=detail) for where, detail in check(study, history)]
    return tuple(found)


def unobserved(history: History) -> tuple[str, ...]:
    """What the checker could not look at, each with the invariants that it leaves open."""
    gaps = {
        "the hosts' job listings (I3, I7, I8, I10)": history.jobs,
        "the clients' own counter of starts (I1, I2)": history.starts,
        "the artifacts' bytes (I3)": history.digests,
        "processes that are not ours (I9)": history.strangers,
    }
    return tuple(what for what, seen in gaps.items() if seen is None)


Found = Iterator[tuple[str, str]]


def _one_start(study: Study, history: History) -> Found:
    for run, count in Counter(history.starts or ()).items():
        if count > 1 and run in study.trials:
            yield run, f"its client counted {count} starts"


def _unsent_never_started(study: Study, history: History) -> Found:
    starts = Counter(history.starts or ())
    for trial_id, trial in study.trials.items():
        if trial.record is not None and trial.record.sent is Sent.NOT_SENT and starts[trial_id]:
            yield trial_id, f"recorded as not sent, its client counted {starts[trial_id]} starts"


def _data_as_written(study: Study, history: History) -> Found:
    jobs = {job.job_id: job for listing in (history.jobs or {}).values() for job in listing}
    for row in history.rows:
        job = jobs.get(str(row.payload.get("job_id"))) if row.stage is Stage.MEASURE and row.outcome == DONE else None
        if job is not None and job.status == ENDED and row.payload.get("exit_code") != job.exit_code:
            yield row.trial_id, f"the journal has exit {row.payload.get('exit_code')}, its host {job.exit_code}"
    collected = {(run, artifact.name): artifact.sha256 for run, artifact in study.all_artifacts()}
    for (run, name), sha256 in (history.digests or {}).items():
        if collected.get((run, name), sha256) != sha256:
            yield run, f"artifact {name} is {'gone' if sha256 is None else 'not what was collected'}"


def _numbers_are_valid(study: Study, history: History) -> Found:
    for trial_id, columns in history.figures.items():
        trial = study.trials.get(trial_id)
        if columns and (trial is None or trial.record is None or trial.record.measurement is None):
            yield trial_id, f"has no measurement, but numbers are stored: {', '.join(columns)}"
    for phase in (e for e in history.entries if isinstance(e, TrialsClassified)):
        found = phase.classification
        if found.route is Route.ORCHESTRATION_FAULT and found.comparison is not None:
            yield phase.trial_ids[-1], "a fault was given the numbers of a comparison"


def _nothing_after_the_word(study: Study, history: History) -> Found:
    spans = list(_spans(history.entries))
    for row in history.rows:
        for since, until, why in spans:
            if row.stage in SENDING and since < row.began and (until is None or row.began < until):
                yield row.trial_id, f"{row.stage} began while nothing might be sent: {why}"
    for listing in (history.jobs or {}).values():
        for job in listing:
            for span in history.forbidden:
                if job.started_boot_s is not None and span.since < job.started_boot_s < span.until:
                    yield job.job_id, f"started on {job.host} while nothing might be sent: {span.why}"


def _spans(entries: Sequence[LedgerEntry]) -> Iterator[tuple[datetime, datetime | None, str]]:
    """From each word that forbids sending to the one that lifts it. An unknown end, a stop and a pause stand alone."""
    open_words: dict[str, tuple[datetime, str]] = {}
    for entry in entries:
        kind, why = _word(entry)
        if why:
            open_words.setdefault(kind, (entry.at, why))
        elif kind in open_words:
            since, said = open_words.pop(kind)
            yield since, entry.at, said
    for since, said in open_words.values():
        yield since, None, said


def _word(entry: LedgerEntry) -> tuple[str, str]:
    """Which kind of word an entry is, and why nothing may be sent after it; an empty why lifts the word."""
    match entry:
        case TrialHeld():
            return "unknown", f"the end of {entry.trial_id} was unknown"
        case TrialResolved():
            return "unknown", ""
        case StudyStopped():
            return "stopped", f"the study had stopped ({entry.reason})"
        case StudyReopened():
            return "stopped", ""
        case OperatorSpoke():
            return "operator", "" if entry.mode == Mode.RUN else f"the control file said {entry.mode}"
        case _:
            return "", ""


def _one_state(study: Study, history: History) -> Found:
    open_rows = {row.trial_id for row in history.rows if row.outcome is None}
    unfinished = [trial_id for trial_id, trial in study.trials.items() if trial.record is None]
    for trial_id in unfinished[:-1]:
        yield trial_id, "neither finished nor held, and a later trial was started"
    for trial_id, trial in study.trials.items():
        failure = trial.record.failure if trial.record is not None else None
        if trial.record is not None and trial_id in open_rows:
            yield trial_id, "has a record, and a stage of it is still open in the journal"
        if failure is not None and not failure.detail:
            yield trial_id, f"ended as {failure.reason} without a detail"
    for trial_id in {row.trial_id for row in history.rows} - set(study.trials) - study.evaluation_ids():
        yield trial_id, "the journal has stages of a trial that the ledger never started"


def _kept_is_the_same(study: Study, history: History) -> Found:
    listed = {job.job_id: job.started_boot_s for listing in (history.jobs or {}).values() for job in listing}
    first: dict[str, float] = {}
    for row in history.rows:
        if row.stage is not Stage.LAUNCH:
            continue
        wanted = {str(server["job_id"]) for server in _dicts(row.payload.get("servers"))}
        for _, job_id in _pairs(row.payload.get("obsolete")):
            if job_id in wanted:
                yield row.trial_id, f"server {job_id} was wanted and ended"
        for job_id, started in _numbers(row.payload.get("started")):
            if first.setdefault(job_id, started) != started:
                yield row.trial_id, f"server {job_id} is another process than before"
            if listed.get(job_id) not in (None, started):
                yield row.trial_id, f"server {job_id} is another process than its host has"


def _nothing_left(study: Study, history: History) -> Found:
    if study.stopped is None or not history.at_rest:
        return
    for listing in (history.jobs or {}).values():
        for job in listing:
            if job.status in LIVE and _is_of(study, job.job_id):
                yield job.job_id, f"still {job.status} on {job.host} although the study ended; tuneloop run ends it"


def _strangers_untouched(_: Study, history: History) -> Found:
    for name, is_same in (history.strangers or {}).items():
        if not is_same:
            yield name, "a process outside our jobs ended"


def _hosts_agree(study: Study, history: History) -> Found:
    if history.jobs is None:
        return
    jobs = {job.job_id: job for listing in history.jobs.values() for job in listing}
    intents = {str(r.payload["job_id"]): r.trial_id for r in history.rows if r.stage is Stage.MEASURE and r.payload}
    for job_id, job in jobs.items():
        started = job.status not in GONE
        if started and job_id.endswith(".measure") and _is_of(study, job_id) and job_id not in intents:
            yield job_id, f"a formal load is {job.status} on {job.host} that the journal never intended"
    for job_id, trial_id in intents.items():
        trial = study.trials.get(trial_id)
        found = _disagreement(trial, jobs.get(job_id)) if trial is not None else None
        if found is not None:
            yield trial_id, found


def _disagreement(trial: TrialState, job: HostJob | None) -> str | None:
    """What the ledger says of a load against what its host says."""
    status = job.status if job is not None else "absent"
    if trial.record is None:
        return None
    by_hand = trial.resolved.finding if trial.resolved is not None else None
    match trial.record.sent:
        case Sent.FINISHED if status != ENDED and not (by_hand is Finding.FINISHED and status in LOST):
            return f"recorded as finished, its job is {status} on the host"
        case Sent.NOT_SENT if status not in GONE and not _is_unsent(trial, status, by_hand):
            return f"recorded as not sent, its job is {status} on the host"
        case Sent.UNKNOWN if status in LIVE:
            return f"recorded as over, its job is {status} on the host"
    return None


def _is_unsent(trial: TrialState, status: str, by_hand: Finding | None) -> bool:
    """A client may run and end without sending: then its data and the servers' logs said so."""
    failure = trial.record.failure if trial.record is not None else None
    judged_by_data = failure is not None and failure.stage in (Stage.COLLECT, Stage.ANALYSE)
    if status in LOST:
        return judged_by_data or by_hand is Finding.NEVER_RAN
    return status == ENDED and judged_by_data


def _is_of(study: Study, job_id: str) -> bool:
    """Servers are named after the study, clients after its trials and evaluations."""
    return job_id.startswith((f"{study.study_id}.", f"{study.study_id}-t", f"{study.study_id}-q"))


def _dicts(value: object) -> list[Mapping[str, object]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, Sequence) else []


def _pairs(value: object) -> list[tuple[str, str]]:
    return [(str(item[0]), str(item[1])) for item in value] if isinstance(value, Sequence) else []


def _numbers(value: object) -> list[tuple[str, float]]:
    found = value.items() if isinstance(value, Mapping) else ()
    return [(str(key), number) for key, number in found if isinstance(number, float)]


_CHECKS: dict[Invariant, Callable[[Study, History], Found]] = {
    Invariant.ONE_START: _one_start,
    Invariant.UNSENT_NEVER_STARTED: _unsent_never_started,
    Invariant.DATA_AS_WRITTEN: _data_as_written,
    Invariant.NUMBERS_ARE_VALID: _numbers_are_valid,
    Invariant.NOTHING_AFTER_THE_WORD: _nothing_after_the_word,
    Invariant.ONE_STATE: _one_state,
    Invariant.KEPT_IS_THE_SAME: _kept_is_the_same,
    Invariant.NOTHING_LEFT: _nothing_left,
    Invariant.STRANGERS_UNTOUCHED: _strangers_untouched,
    Invariant.HOSTS_AGREE: _hosts_agree,
}
