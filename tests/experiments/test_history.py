"""The history checker finds what it is there to find: a planted violation per invariant, and none in a clean night."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from experiments.history import Forbidden, History, HostJob, Invariant, check_history, unobserved
from experiments.ledger import (
    Finding,
    LedgerEntry,
    OperatorSpoke,
    TrialFinished,
    TrialHeld,
    TrialResolved,
    TrialStarted,
)
from experiments.ports import JournalRow
from experiments.study import fold
from experiments.trial import Reason, Sent, Stage, Tier, evaluation_id
from tests.factories import EVENING, a_config, a_fault, a_load, a_record, an_opening

TRIALS = ("t1", "t2")


def opening() -> LedgerEntry:
    return an_opening()


def started(trial_id: str, minute: int) -> TrialStarted:
    return TrialStarted(
        at=EVENING + timedelta(minutes=minute),
        trial_id=trial_id,
        tier=Tier.BASELINE,
        card_digest=None,
        config=a_config(),
        load=a_load(),
        why="a test",
    )


def row(trial_id: str, stage: Stage, minute: int, outcome: str | None = "done", **payload: object) -> JournalRow:
    began = EVENING + timedelta(minutes=minute)
    ended = None if outcome is None else began + timedelta(seconds=30)
    return JournalRow(
        trial_id=trial_id, stage=stage, attempt=1, began=began, ended=ended, outcome=outcome, payload=payload
    )


def launch(trial_id: str, minute: int, **payload: object) -> JournalRow:
    servers = [{"role": "prefill", "job_id": "s.prefill.k.1", "host": "p0", "port": 1, "reused": False}]
    facts = {"servers": servers, "obsolete": [], "started": {"s.prefill.k.1": 100.0}, **payload}
    return row(trial_id, Stage.LAUNCH, minute, **facts)


def measured(trial_id: str, minute: int) -> JournalRow:
    return row(trial_id, Stage.MEASURE, minute, job_id=f"{trial_id}.measure", exit_code=0)


def clean() -> History:
    """Two measured trials, and hosts, clients and artifacts that agree."""
    entries: list[LedgerEntry] = [opening()]
    rows: list[JournalRow] = []
    for number, trial_id in enumerate(TRIALS):
        minute = 1 + 10 * number
        entries += [
            started(trial_id, minute),
            TrialFinished(at=EVENING + timedelta(minutes=minute + 5), record=a_record(trial_id)),
        ]
        rows += [launch(trial_id, minute + 1), measured(trial_id, minute + 2)]
    study = fold(entries)
    digests = {
        (trial_id, artifact.name): artifact.sha256
        for trial_id, trial in study.trials.items()
        for artifact in (trial.record.artifacts if trial.record is not None else ())
    }
    server = HostJob(host="p0", job_id="s.prefill.k.1", status="running", started_boot_s=100.0)
    clients = [HostJob(host="p0", job_id=f"{t}.measure", status="exited", exit_code=0) for t in TRIALS]
    return History(
        entries=entries,
        rows=rows,
        jobs={"p0": [server, *clients]},
        starts=[*TRIALS, "t1.warm-up.1"],
        figures={"t1": ["tpot_mean_ms"], "t2": ["tpot_mean_ms"]},
        digests=digests,
        strangers={"a listener": True},
        at_rest=True,
    )


def broken(history: History) -> list[Invariant]:
    return [violation.invariant for violation in check_history(history)]


def faulted(history: History, sent: Sent, **more: object) -> History:
    """The second trial ended with a fault instead."""
    fault = a_record("t2", failure=a_fault(Stage.MEASURE, Reason.CLIENT, sent))
    entries = [*history.entries[:-1], TrialFinished(at=history.entries[-1].at, record=fault)]
    known = {
        "entries": entries,
        "figures": {"t1": ["tpot_mean_ms"]},
        "digests": {key: value for key, value in (history.digests or {}).items() if key[0] == "t1"},
    }
    return replace(history, **{**known, **more})  # type: ignore[arg-type]


def test_a_clean_night_violates_nothing() -> None:
    """Agreement of all sources is no violation, and nothing is left unobserved."""
    assert check_history(clean()) == ()
    assert unobserved(clean()) == ()


def test_what_was_not_asked_is_named_and_not_taken_to_hold() -> None:
    """Without hosts, counter, bytes and strangers the checker says which invariants it could not look at."""
    blind = replace(clean(), jobs=None, starts=None, digests=None, strangers=None)

    assert check_history(blind) == ()
    assert [gap.split(" (")[1] for gap in unobserved(blind)] == ["I3, I7, I8, I10)", "I1, I2)", "I3)", "I9)"]


def test_a_second_start_of_a_formal_load_breaks_i1() -> None:
    """The client's own counter has two starts of one trial; a warm-up may start as often as it likes."""
    history = clean()
    twice = [*(history.starts or ()), "t1", "t1.warm-up.1"]
    assert broken(replace(history, starts=twice)) == [Invariant.ONE_START]


def test_a_start_of_what_was_not_sent_breaks_i2() -> None:
    """The ledger says not sent, the client counted a start."""
    gone = [HostJob(host="p0", job_id="t2.measure", status="fenced")]
    jobs = {"p0": [job for job in (clean().jobs or {})["p0"] if job.job_id != "t2.measure"] + gone}
    assert broken(faulted(clean(), Sent.NOT_SENT, jobs=jobs)) == [Invariant.UNSENT_NEVER_STARTED]
    assert broken(faulted(clean(), Sent.NOT_SENT, jobs=jobs, starts=["t1"])) == []


@pytest.mark.parametrize("sha256", [None, "0" * 64])
def test_an_artifact_that_is_gone_or_other_bytes_breaks_i3(sha256: str | None) -> None:
    """Every byte behind a number is held against the hash of its collection."""
    history = clean()
    digests = dict(history.digests or {})
    digests[next(iter(digests))] = sha256
    assert broken(replace(history, digests=digests)) == [Invariant.DATA_AS_WRITTEN]


def test_another_exit_code_than_the_hosts_breaks_i3() -> None:
    """The journal noted exit 0; the host's own record says 1."""
    history = clean()
    jobs = [replace(job, exit_code=1) if job.job_id == "t1.measure" else job for job in (history.jobs or {})["p0"]]
    assert broken(replace(history, jobs={"p0": jobs})) == [Invariant.DATA_AS_WRITTEN]


def test_a_stored_number_of_a_fault_breaks_i4() -> None:
    """A row without a measurement has a figure in its columns."""
    history = faulted(clean(), Sent.UNKNOWN, figures={"t1": ["tpot_mean_ms"], "t2": ["output_tok_s_per_card"]})
    assert broken(history) == [Invariant.NUMBERS_ARE_VALID]


def test_a_stage_that_begins_while_an_end_is_unknown_breaks_i5() -> None:
    """Between the word and a person's finding nothing is sent, in no trial."""
    held = [
        opening(),
        started("t1", 1),
        TrialHeld(at=EVENING + timedelta(minutes=4), trial_id="t1", stage=Stage.MEASURE, detail="look"),
        TrialResolved(
            at=EVENING + timedelta(minutes=9), trial_id="t1", finding=Finding.DEAD, by="ops", reason="it is off"
        ),
    ]
    before = [launch("t1", 2), row("t1", Stage.MEASURE, 3, None, job_id="t1.measure")]
    history = History(entries=held, rows=before)
    assert broken(history) == []
    assert broken(replace(history, rows=[*before, row("t1", Stage.CANARY, 6)])) == [Invariant.NOTHING_AFTER_THE_WORD]
    assert broken(replace(history, rows=[*before, row("t1", Stage.COLLECT, 6)])) == []
    assert broken(replace(history, rows=[*before, row("t1", Stage.CANARY, 10)])) == []


def test_a_stage_that_begins_after_a_pause_was_heard_breaks_i5() -> None:
    """Until the operator's next word, nothing that sends is begun; what was begun goes on to its data."""

    def spoke(minute: int, mode: str) -> OperatorSpoke:
        at = EVENING + timedelta(minutes=minute)
        return OperatorSpoke(at=at, mode=mode, by="ops", reason="handing over", file_digest="0")

    history = History(entries=[opening(), started("t1", 1), spoke(4, "pause"), spoke(9, "run")], rows=[launch("t1", 2)])
    assert broken(history) == []
    assert broken(replace(history, rows=[launch("t1", 2), row("t1", Stage.WARM_UP, 5)])) == [
        Invariant.NOTHING_AFTER_THE_WORD
    ]
    assert broken(replace(history, rows=[launch("t1", 2), row("t1", Stage.WARM_UP, 10)])) == []


def test_a_job_that_starts_after_the_pause_was_read_breaks_i5() -> None:
    """By the clock of the host on which it started."""
    history = clean()
    span = Forbidden(since=90.0, until=110.0, why="paused")
    assert broken(replace(history, forbidden=[span])) == [Invariant.NOTHING_AFTER_THE_WORD]
    assert broken(replace(history, forbidden=[replace(span, since=101.0)])) == []


def test_a_trial_left_behind_breaks_i6() -> None:
    """A later trial was started although the earlier one is neither finished nor held."""
    entries = clean().entries
    history = replace(clean(), entries=entries[:2], rows=clean().rows[:1], jobs=None, digests={}, figures={})
    assert broken(history) == []
    stray = replace(history, rows=[*history.rows, row("t9", Stage.CHECK, 3)])
    assert broken(stray) == [Invariant.ONE_STATE]


def test_the_evaluation_that_is_under_way_is_no_stray() -> None:
    """One evaluation may have stages before its answer stands in the ledger; a later one may not."""
    history = clean()
    study_id = fold(history.entries).study_id
    first, second = (row(evaluation_id(study_id, n), Stage.CHECK, 30) for n in (1, 2))
    assert broken(replace(history, rows=[*history.rows, first])) == []
    assert broken(replace(history, rows=[*history.rows, second])) == [Invariant.ONE_STATE]


def test_an_open_stage_of_a_finished_trial_breaks_i6() -> None:
    """What has a record has no stage that may still be running."""
    history = clean()
    open_row = row("t1", Stage.COLLECT, 4, None)
    assert broken(replace(history, rows=[*history.rows, open_row])) == [Invariant.ONE_STATE]


def test_a_kept_server_that_is_another_process_breaks_i7() -> None:
    """The same job id with another start time, in a later trial or on its host; or one that was wanted and ended."""
    history = clean()
    first, *_ = history.rows
    other = launch("t2", 12, started={"s.prefill.k.1": 555.0})
    changed = [first if r.trial_id == "t1" and r.stage is Stage.LAUNCH else r for r in history.rows]
    changed = [other if r.trial_id == "t2" and r.stage is Stage.LAUNCH else r for r in changed]
    assert set(broken(replace(history, rows=changed))) == {Invariant.KEPT_IS_THE_SAME}
    ended = [launch("t1", 2, obsolete=[["p0", "s.prefill.k.1"]]), *history.rows[1:]]
    assert broken(replace(history, rows=ended)) == [Invariant.KEPT_IS_THE_SAME]


def test_a_server_that_outlives_its_study_breaks_i8() -> None:
    """The study ended and nobody drives it; its server still runs."""
    from experiments.ledger import StopReason, StudyStopped

    history = clean()
    study_id = fold(history.entries).study_id
    stop = StudyStopped(at=EVENING + timedelta(hours=2), reason=StopReason.NO_CANDIDATE, detail="enough")
    left = HostJob(host="p0", job_id=f"{study_id}.prefill.k.1", status="running")
    ended = replace(history, entries=[*history.entries, stop])
    assert broken(ended) == []
    assert broken(replace(ended, jobs={"p0": [*(history.jobs or {})["p0"], left]})) == [Invariant.NOTHING_LEFT]


def test_a_stranger_that_died_breaks_i9() -> None:
    """A process outside our jobs is not there any more."""
    assert broken(replace(clean(), strangers={"a listener": False})) == [Invariant.STRANGERS_UNTOUCHED]


@pytest.mark.parametrize(
    ("sent", "status", "is_broken"),
    [
        (Sent.UNKNOWN, "running", True),
        (Sent.UNKNOWN, "lost", False),
        (Sent.NOT_SENT, "fenced", False),
        (Sent.NOT_SENT, "absent", False),
        (Sent.NOT_SENT, "running", True),
        (Sent.NOT_SENT, "exited", True),
        (Sent.FINISHED, "exited", False),
        (Sent.FINISHED, "lost", True),
    ],
)
def test_a_ledger_that_its_hosts_contradict_breaks_i10(sent: Sent, status: str, is_broken: bool) -> None:
    """What was recorded of a load is what the host's job directory says."""
    jobs = [j for j in (clean().jobs or {})["p0"] if j.job_id != "t2.measure"]
    found = [] if status == "absent" else [HostJob(host="p0", job_id="t2.measure", status=status, exit_code=0)]
    history = faulted(clean(), sent, jobs={"p0": [*jobs, *found]}, starts=["t1"])
    assert broken(history) == ([Invariant.HOSTS_AGREE] if is_broken else [])


def test_a_formal_load_that_the_journal_never_intended_breaks_i10() -> None:
    """A load of the study on a host, and no row that meant it."""
    history = clean()
    study_id = fold(history.entries).study_id
    stray = HostJob(host="p0", job_id=f"{study_id}-t009.measure", status="exited", exit_code=0)
    jobs = {"p0": [*(history.jobs or {})["p0"], stray]}
    assert broken(replace(history, jobs=jobs)) == [Invariant.HOSTS_AGREE]
