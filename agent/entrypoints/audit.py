"""`tuneloop audit`: gather what ledger, journal, artifacts, hosts and clients say, and name every violated invariant.

Reads only. Hosts are asked for their job listings where they answer; what was not observed is said, never assumed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from agent.bootstrap import connect_hosts, read_pool
from agent.records import open_for_reading
from agent.workspace import Workspace
from executor.clock import SystemClock
from executor.pool import Pool
from executor.remote_host import JobState, RemoteHost
from experiments.errors import HostError
from experiments.history import History, HostJob, Violation, check_history, unobserved
from experiments.ledger import TrialStarted
from experiments.study import fold
from state.database import Database

ASK_TIMEOUT_S = 15.0
COUNTER_VARIABLE = "TUNELOOP_SIM_RUNS_FILE"  # only a simulated pool's clients count their own starts
FIGURES = ("output_tok_s_per_card", "request_per_s", "ttft_mean_s", "tpot_mean_ms", "e2e_mean_s", "accept_length")


@dataclass(frozen=True, kw_only=True)
class Audit:
    """What was looked at and what is wrong."""

    study_id: str
    entries: int
    trials: int
    artifacts: int
    violations: tuple[Violation, ...]
    not_observed: tuple[str, ...]

    @property
    def is_clean(self) -> bool:
        return not self.violations


def audit_workspace(folder: Path, *, contact: bool = True) -> Audit:
    """Raises TuningError where the ledger's own chain is broken: nothing that it says can be relied on then."""
    workspace = Workspace(folder.resolve())
    pool = read_pool(workspace)
    silent: list[str] = []
    with open_for_reading(workspace) as record:
        database, study_id = record.database, record.study_id()
        database.check_integrity()
        entries = database.ledger().verify(study_id)
        jobs = _listings(pool, silent) if contact else None
        history = gather(workspace, database, study_id, jobs, _counted_starts(pool))
    missing = [what for what in unobserved(history) if "not ours" not in what]
    return Audit(
        study_id=study_id,
        entries=entries,
        trials=sum(isinstance(entry, TrialStarted) for entry in history.entries),
        artifacts=len(history.digests or {}),
        violations=check_history(history),
        not_observed=(*silent, *missing),
    )


def gather(
    workspace: Workspace,
    database: Database,
    study_id: str,
    jobs: Mapping[str, tuple[HostJob, ...]] | None,
    starts: tuple[str, ...] | None,
) -> History:
    entries = database.ledger().entries(study_id)
    trials = [entry.trial_id for entry in entries if isinstance(entry, TrialStarted)]
    study = fold(entries)
    journal = database.journal(SystemClock().now)
    return History(
        entries=entries,
        rows=[row for run in (*trials, *sorted(study.evaluation_ids())) for row in journal.rows(run)],
        jobs=jobs,
        starts=starts,
        figures={trial_id: _stored_figures(database, trial_id) for trial_id in trials},
        digests={
            (trial_id, artifact.name): _digest_of(workspace.artifacts / trial_id / artifact.name)
            for trial_id in trials
            for artifact in database.views().artifacts(trial_id)
        }
        | {
            (entry.evaluation_id, entry.log.name): _digest_of(
                workspace.artifacts / entry.evaluation_id / entry.log.name
            )
            for entry in study.all_evaluations()
            if entry.evaluation_id is not None and entry.log is not None
        },
        at_rest=_is_at_rest(workspace),
    )


def list_jobs(host: RemoteHost) -> tuple[HostJob, ...]:
    name = host.address.name
    return tuple(_host_job(name, state) for state in host.jobs(ASK_TIMEOUT_S))


def _host_job(host: str, state: JobState) -> HostJob:
    return HostJob(
        host=host,
        job_id=state.job_id,
        status=str(state.status),
        exit_code=state.exit_code,
        started_boot_s=state.started_boot_s,
    )


def _listings(pool: Pool, silent: list[str]) -> dict[str, tuple[HostJob, ...]] | None:
    """Every host's jobs; None unless all of them answered, since an absent job means something."""
    found: dict[str, tuple[HostJob, ...]] = {}
    for name, host in connect_hosts(pool, SystemClock()).items():
        try:
            found[name] = list_jobs(host)
        except HostError as error:
            silent.append(str(error))
        finally:
            host.close()
    return found if len(found) == len(pool.hosts) else None


def _counted_starts(pool: Pool) -> tuple[str, ...] | None:
    counter = pool.hosts[pool.client.on].env.get(COUNTER_VARIABLE)
    if not pool.simulated or counter is None or not Path(counter).exists():
        return None
    return tuple(json.loads(line)["run"] for line in Path(counter).read_text().splitlines())


def _stored_figures(database: Database, trial_id: str) -> tuple[str, ...]:
    row = database.views().trial(trial_id)
    return tuple(name for name in FIGURES if row is not None and getattr(row, name) is not None)


def _digest_of(path: Path) -> str | None:
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return None


def _is_at_rest(workspace: Workspace) -> bool:
    """Whether no service drives the study now."""
    lock = FileLock(workspace.lock)
    try:
        with lock.acquire(timeout=0):
            return True
    except Timeout:
        return False


def report_of(audit: Audit) -> list[str]:
    looked = f"{audit.entries} entries (chain intact), {audit.trials} trials, {audit.artifacts} artifacts"
    lines = [f"study {audit.study_id}: {looked}"]
    lines += [f"NOT_OBSERVED  {what}" for what in audit.not_observed]
    lines += [f"VIOLATED  {violation}" for violation in audit.violations]
    if audit.is_clean:
        lines.append("no invariant is violated" + (" as far as was observed" if audit.not_observed else ""))
    return lines
