"""What people read of a study: ledger pages and kept configurations. Made again from the entries at any time."""

from __future__ import annotations

import os
from collections.abc import Sequence

import structlog

from agent.export import baseline_yaml
from agent.nodes import Tell
from agent.workspace import Workspace
from executor.pool import Pool
from experiments.ledger import LedgerEntry
from experiments.study import Study
from state.database import Database

log = structlog.get_logger(__name__)


def refresh(workspace: Workspace, database: Database, study: Study, pool: Pool, tell: Tell) -> None:
    """Write what people read. A page that cannot be written is said and logged; it never ends the night."""
    try:
        write_kept(workspace, study)
        write_pages(workspace, database.ledger().entries(study.study_id), pool)
    except Exception as error:
        log.exception("pages.failed", study=study.study_id)
        tell(f"the ledger pages could not be written ({type(error).__name__}); try: tuneloop ledger {workspace.root}")


def write_pages(workspace: Workspace, entries: Sequence[LedgerEntry], pool: Pool, lang: str = "en") -> None:
    """The ledger pages, without the private names of the pool."""
    from agent.ledger.build import build_ledger  # matplotlib takes half a second to import

    build_ledger(
        entries,
        workspace.ledger,
        lang=lang,
        artifacts=workspace.artifacts,
        kept=workspace.kept,
        private=private_names(pool),
    )


def write_kept(workspace: Workspace, study: Study) -> None:
    """Every kept configuration as the YAML that a study starts from."""
    workspace.kept.mkdir(exist_ok=True)
    for kept in study.kept:
        heading = f"kept by study {study.study_id}, card {kept.card_digest}"
        if study.opened.simulated:
            heading += "\nfound on a SIMULATED pool: nothing here was measured on hardware"
        target = workspace.kept / f"{kept.name}.yaml"
        if not target.exists():
            temporary = target.with_suffix(f".{os.getpid()}.tmp")
            temporary.write_text(baseline_yaml(kept.config, heading))
            temporary.replace(target)


def private_names(pool: Pool) -> frozenset[str]:
    """What must never reach a prompt, should it ever stand in a text: hosts, addresses, containers, folders."""
    hosts = pool.hosts.items()
    names = {part for name, h in hosts for part in (name, h.ssh, h.address, h.container, h.workdir) if part}
    return frozenset({*names, pool.workdir, pool.client.model_path} - {"127.0.0.1"})
