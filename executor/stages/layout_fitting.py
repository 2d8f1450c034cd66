"""fit: a layout from each dump, by a program on the role's host; and of every layout, what will be loaded.

The origin is written last and whole: a layout without one is made again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from executor.artifacts import keep_bytes
from executor.engines.layout_fit import PROGRAM, FitRefused, Fitted, parse_fit
from executor.layouts import NamedLayout
from executor.stage_result import Done, Faulted, StageResult, Waiting
from executor.stages.layout_files import layouts_of, objection_to, purpose, read_origin
from executor.stages.on_host import run_on_host
from executor.trial_context import TrialContext
from experiments.trial import Reason, Stage

LAYOUT_CAP_BYTES = 64 << 20


def fit(context: TrialContext, _: Mapping[str, Any]) -> StageResult:
    """Fit what was recorded; of a layout that stands, its origin says what it is."""
    layouts: dict[str, Any] = {}
    artifacts: list[dict[str, Any]] = []
    notes = []
    for named in layouts_of(context):
        origin = read_origin(context, named)
        fresh = origin is None
        made = _fitted(context, named) if origin is None else origin
        if isinstance(made, Faulted | Waiting):
            return made
        objection = objection_to(context, named, made)
        if objection is not None:
            return objection
        if fresh:
            artifacts += [made["recorded"]["artifact"], _keep_layout(context, named)]
        layouts[str(named.role)] = {"name": named.name, "path": named.file, **made["fitted"]}
        notes.append(f"{describe(named, made)}{'' if fresh else ', fitted before'}")
    return Done(payload={"layouts": layouts, "artifacts": artifacts, "sources": notes}, note="; ".join(notes))


def describe(named: NamedLayout, made: Mapping[str, Any]) -> str:
    found = made["fitted"]
    return (
        f"{named.role}: layout {named.name} sha256 {found['sha256'][:16]}, {found['slots']} slots, fitted on "
        f"{made['recorded']['requests']} requests, predicted balancedness {found['before']:.3f} → {found['after']:.3f}"
    )


def _fitted(context: TrialContext, named: NamedLayout) -> dict[str, Any] | Faulted | Waiting:
    """Run the program over the dump of this trial, and write down what came of it."""
    recorded = context.payloads[Stage.RECORD]["dumps"].get(str(named.role))
    if recorded is None:
        detail = f"{named.role}: {named.folder} was removed after its layout had been found there"
        return Faulted(reason=Reason.ENVIRONMENT, detail=detail)
    words = (
        *("--dump", recorded["path"], "--sha256", recorded["artifact"]["sha256"], "--out", named.file),
        *("--ranks", str(recorded["ranks"]), "--redundant", str(named.layout.fit.redundant_experts)),
        *("--algorithm", named.layout.fit.algorithm),
    )
    build = context.pool.build_named(context.plan.config.get_build(named.role))
    python = context.pool.engine_python_of(named.host, build)
    end, output = run_on_host(context, named.host, f"fit-{named.role}", python=python, program=PROGRAM, words=words)
    if end.cancelled:
        return Waiting(why=end.detail)
    match parse_fit(output):
        case FitRefused(message=message, refused=True):
            detail = f"{named.role}: no layout {named.name} can be fitted: {message}"
            return Faulted(reason=Reason.CONTRACT_MISMATCH, detail=detail, configuration_caused=True)
        case FitRefused(message=message):
            detail = f"{named.role}: the layout {named.name} was not fitted: {message} {end.detail}".rstrip()
            return Faulted(reason=Reason.POST_PROCESSING, detail=detail, repairable=True)
        case Fitted() as fitted:
            made = {"purpose": purpose(context, named), "recorded": recorded, "fitted": fitted.model_dump(mode="json")}
            context.hosts[named.host].put_file(named.origin, json.dumps(made, sort_keys=True, indent=1).encode())
            return made


def _keep_layout(context: TrialContext, named: NamedLayout) -> dict[str, Any]:
    data = context.hosts[named.host].fetch(named.file, LAYOUT_CAP_BYTES)
    return keep_bytes(context.artifacts, f"layout/{named.role}.{named.name}.json", data)
