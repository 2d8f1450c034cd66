"""Old raw files go, their hashes stay. Files behind a kept configuration are never offered (`state.retention`)."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from datetime import timedelta

import structlog

from agent.bootstrap import Application

log = structlog.get_logger(__name__)


def remove_old_artifacts(app: Application, keep: timedelta) -> int:
    """How many files went. The record is first: a file that is still there is harmless, a lie is not."""
    retention = app.database.retention(app.clock.now)
    old: dict[str, list[str]] = defaultdict(list)
    for trial_id, artifact in retention.removable(app.clock.now() - keep, study_id=app.store.study_id):
        old[trial_id].append(artifact.name)
    for trial_id, names in old.items():
        retention.mark_removed(trial_id, names)
        _remove(app, trial_id, names)
    count = sum(map(len, old.values()))
    if count:
        log.info("artifacts.removed", study=app.store.study_id, files=count)
    return count


def _remove(app: Application, trial_id: str, names: list[str]) -> None:
    folder = (app.workspace.artifacts / trial_id).resolve()
    for name in names:
        file = folder / name
        if file.resolve().is_relative_to(folder):
            with suppress(FileNotFoundError):
                file.unlink()
    for inside in (*sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True), folder):
        with suppress(OSError):  # something that is no artifact is still in it
            inside.rmdir()
