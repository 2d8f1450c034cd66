"""The files of a named expert layout on its host: what stands there, and whether it may be loaded by this trial."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from executor.layouts import NamedLayout, differences, named_layouts, purpose_of
from executor.remote_host import HostRefused
from executor.stage_result import Faulted
from executor.trial_context import TrialContext
from experiments.trial import Reason, Stage

ORIGIN_CAP_BYTES = 1 << 20


def layouts_of(context: TrialContext) -> tuple[NamedLayout, ...]:
    return named_layouts(context.pool, context.plan.config)


def read_origin(context: TrialContext, named: NamedLayout) -> dict[str, Any] | None:
    """What the layout was made from, or None if it is still to be made. Raises HostRefused for an unreadable one."""
    host = context.hosts[named.host]
    try:
        text = host.fetch(named.origin, ORIGIN_CAP_BYTES)
    except HostRefused as error:
        if error.code == "not_found":
            return None
        raise
    try:
        origin = json.loads(text)
        return {
            "purpose": dict(origin["purpose"]),
            "recorded": dict(origin["recorded"]),
            "fitted": dict(origin["fitted"]),
        }
    except (ValueError, KeyError, TypeError) as error:
        raise HostRefused(host.address.name, "changed", f"{named.origin} is damaged: {error!r}") from None


def objection_to(context: TrialContext, named: NamedLayout, origin: dict[str, Any]) -> Faulted | None:
    """Why a layout that stands may not be loaded: made for something else, or no longer what was fitted."""
    other = differences(origin["purpose"], purpose(context, named))
    if other:
        detail = (
            f"{named.role}: the layout {named.name} was recorded with another {', '.join(other)}; "
            "give a layout for this one another name in pool.yaml"
        )
        return Faulted(reason=Reason.CONTRACT_MISMATCH, detail=detail, configuration_caused=True)
    found = context.hosts[named.host].file_digest(named.file)
    if found is None or found.sha256 != origin["fitted"]["sha256"]:
        detail = f"{named.role}: {named.file} is not the layout that was fitted; remove {named.folder} to make it again"
        return Faulted(reason=Reason.ENVIRONMENT, detail=detail)
    return None


def purpose(context: TrialContext, named: NamedLayout) -> dict[str, Any]:
    sources = context.payloads[Stage.CHECK].get("sources", ())
    installed = installed_source(sources, named)
    return purpose_of(context.pool, context.plan.config, context.plan.scenario, named, installed)


def installed_source(sources: Sequence[str], named: NamedLayout) -> str | None:
    """The installation of this role as the host-side check found it."""
    marks = (", commit:", ", files:", ", simulated")
    return next((s for s in sources if s.startswith(f"{named.role}: ") and any(m in s for m in marks)), None)
