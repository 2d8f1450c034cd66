"""The composition root: the only place that names every concrete class."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from agent.authority import Authority, Ground
from agent.directives import Directives
from agent.drive import Drive
from agent.nodes import Nodes, Tell
from agent.pages import private_names, refresh
from agent.planner.chain import Objections
from agent.planner.optimizers import optimizer_of
from agent.planner.port import Proposer
from agent.planner.rules import RuleProposer
from agent.pool_turns import PoolTurn, PoolTurns
from agent.records import Record, open_record, url_from
from agent.settings import Settings
from agent.study_store import StudyStore
from agent.workspace import Workspace, read_input
from executor.clock import Clock, SystemClock
from executor.engines.release import parse_release
from executor.engines.size_rules import check_sizes
from executor.engines.violation import Severity
from executor.pool import Pool, check_fit, parse_pool
from executor.remote_host import HostAddress, RemoteHost
from executor.runner import Runner
from executor.trial_context import Report
from executor.trial_plan import workload_of
from experiments.card import CardDraft
from experiments.errors import InputError, LedgerConflict
from experiments.goal import Goal, starting_config
from experiments.ledger import StudyOpened
from experiments.study import Study
from state.control import ControlFile
from state.database import Database

log = structlog.get_logger(__name__)


def nothing() -> None:
    """No reason to leave."""


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What a process gives to each study that it drives. `turns` None: it drives one study only."""

    clock: Clock = field(default_factory=SystemClock)
    owner: str = field(default_factory=socket.gethostname)
    database_url: str | None = None
    turns: PoolTurns | None = None
    grounds: tuple[Ground, ...] = ()  # against new trials: night windows, a full disk, leaving
    keeps_rights: bool = False  # the process renews the study's rights itself, as one of its jobs
    leave: Callable[[], None] = nothing  # raises where the process has to go, before anything new is begun


@dataclass(kw_only=True)
class Application:
    """One study on one pool, ready to go on."""

    record: Record
    pool: Pool
    goal: Goal
    store: StudyStore
    hosts: dict[str, RemoteHost]
    nodes: Nodes
    authority: Authority
    clock: Clock
    drive: Drive
    turn: PoolTurn

    @property
    def workspace(self) -> Workspace:
        return self.record.workspace

    @property
    def database(self) -> Database:
        return self.record.database

    def close(self) -> None:
        """Leave. What runs on the hosts goes on; another service may drive the study at once.

        The pool is not given back: servers may be up. Its lease runs out, or is taken back by this study.
        """
        self.turn.forget()
        self.drive.release()
        for host in self.hosts.values():
            host.close()
        self.database.close()


def open_application(
    root: Path, settings: Settings, *, report: Report, tell: Tell, around: Surroundings | None = None
) -> Application:
    """Read the workspace, open or find its study, and wire everything. Raises InputError on a wrong file.

    Raises DriverRefused while another service drives the study.
    """
    around = around or Surroundings(database_url=url_from(os.environ))
    workspace = Workspace(root.resolve())
    goal, pool = workspace.read_goal(), read_pool(workspace)
    check_fit(pool, goal, str(workspace.pool_file))
    record = open_record(workspace, around.database_url)
    try:
        return _wire(record, goal, pool, settings, report, tell, around)
    except BaseException:
        record.close()
        raise


def _wire(
    record: Record, goal: Goal, pool: Pool, settings: Settings, report: Report, tell: Tell, around: Surroundings
) -> Application:
    workspace, database, clock = record.workspace, record.database, around.clock
    database.check_integrity()
    study_id = find_or_open_study(record, goal, pool, clock)
    database.ledger().verify(study_id)
    planner, hosts = build_planner(settings, goal, pool), connect_hosts(pool, clock)
    drivers = database.drivers(clock.now)
    drive = Drive(drivers, study_id, f"{around.owner}:{workspace.root}")
    if not around.keeps_rights:
        drive.keep_alive()
    turns = around.turns or PoolTurns([database])
    turn = PoolTurn(turns=turns, drivers=drivers, pool=pool.name, study_id=study_id)
    store = StudyStore(database.ledger(drive.epoch), study_id)
    authority = Authority(
        control=ControlFile(workspace.control_file),
        clock=clock,
        hear=Directives(store, clock).hear,
        grounds=around.grounds,
        turn=turn.take,
        leave=around.leave,
    )
    runner = Runner(
        pool=pool,
        hosts=hosts,
        journal=database.journal(clock.now, drive.epoch),
        clock=clock,
        report=report,
        artifacts=workspace.artifacts,
    )
    nodes = Nodes(
        store=store,
        pool=pool,
        runner=runner,
        ask_again=runner.ask_again,
        authority=authority,
        clock=clock,
        suggesters=(RuleProposer(), optimizer_of(goal.planner.optimizer)),
        planner=planner,
        objections=lambda study: size_objections(study, pool),
        tell=tell,
        closed=lambda study: refresh(workspace, database, study, pool, tell),
    )
    return Application(
        record=record,
        pool=pool,
        goal=goal,
        store=store,
        hosts=hosts,
        nodes=nodes,
        authority=authority,
        clock=clock,
        drive=drive,
        turn=turn,
    )


def read_pool(workspace: Workspace) -> Pool:
    return parse_pool(read_input(workspace.pool_file), str(workspace.pool_file))


def connect_hosts(pool: Pool, clock: Clock) -> dict[str, RemoteHost]:
    """One client per host. Nothing is contacted before the first question."""
    return {
        name: RemoteHost(
            HostAddress(
                name=name,
                ssh=host.ssh,
                ssh_config=pool.ssh.config,
                known_hosts=pool.ssh.known_hosts,
                container=host.container,
                workdir=pool.workdir_of(name),
                python=host.python,
                servers_at=host.address,
            ),
            clock,
        )
        for name, host in pool.hosts.items()
    }


def find_or_open_study(record: Record, goal: Goal, pool: Pool, clock: Clock) -> str:
    """The study of this workspace. A goal that was edited after the study opened is refused, not silently adopted."""
    ledger = record.database.ledger()
    study_id = record.known_study()
    if study_id is None:
        study_id = record.written_study() or record.remember(f"{goal.name}-{secrets.token_hex(2)}")
        opening = _opening(record.workspace, study_id, goal, pool, clock)
        try:
            ledger.append(study_id, [opening], after=0)
        except LedgerConflict:
            log.info("study.opened_by_another", study=study_id)
    first = ledger.entry(study_id, 1)
    if isinstance(first, StudyOpened) and first.goal != goal:
        raise InputError(
            str(record.workspace.goal_file),
            0,
            0,
            f"differs from the goal that study {study_id} was opened with; a study keeps its goal. "
            "Start another workspace for the new one: tuneloop init DIR",
        )
    return study_id


def _opening(workspace: Workspace, study_id: str, goal: Goal, pool: Pool, clock: Clock) -> StudyOpened:
    return StudyOpened(
        at=clock.now(),
        study_id=study_id,
        goal=goal,
        scenario_digest=goal.scenario.digest(),
        pool=pool.name,
        cards=pool.cards.total,
        simulated=pool.simulated,
        starting=starting_config(goal, workspace.read_baseline(goal)),
    )


def build_planner(settings: Settings, goal: Goal, pool: Pool) -> Proposer | None:
    """The LLM proposer, where an endpoint is configured and the goal has tokens for it; None otherwise."""
    if settings.llm_base_url is None or goal.budget.llm_tokens == 0:
        return None
    from agent.llm import build_chat_model  # openai takes half a second to import
    from agent.planner.llm_proposer import LlmProposer

    model = build_chat_model(settings)
    return None if model is None else LlmProposer(model, settings.llm_prompt_chars, private_names(pool))


def size_objections(study: Study, pool: Pool) -> Objections:
    """The engine's size rules on a draft's whole configuration, before anything starts."""
    release, workload = parse_release(pool.engine.version), workload_of(study.goal.scenario)

    def ask(draft: CardDraft) -> tuple[str, ...]:
        config = study.incumbent.changed(draft.change)
        before = {(v.rule, v.role) for v in check_sizes(study.incumbent, release, workload)}
        return tuple(
            v.message
            for v in check_sizes(config, release, workload)
            if v.severity is not Severity.RISK and (v.rule, v.role) not in before
        )

    return ask
