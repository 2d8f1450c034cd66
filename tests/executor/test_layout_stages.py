"""Recording waits for its time; a layout that stands needs none."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from executor.pool import Fitting, Layout
from executor.stage_result import Done, Faulted, Waiting
from executor.stages.layout_files import layouts_of, purpose
from executor.stages.layout_fitting import fit
from executor.stages.layout_recording import record
from executor.trial_context import TrialContext
from experiments.errors import HostError
from experiments.ports import Blocked
from experiments.serving_config import Path as SettingPath
from experiments.trial import Reason, Stage
from tests.executor.stage_bench import BASELINE, Bench, numbers

SETTING = SettingPath.parse("prefill.layout.init-expert-location")
SHORT = Blocked(reason="the authorization ends first")


def wanting(bench: Bench, name: str) -> TrialContext:
    """A trial of a configuration with this layout, when nothing may be started any more."""
    layouts = {name: Layout(fit=Fitting(redundant_experts=16))}
    pool = bench.pool.model_copy(update={"layouts": layouts})
    other = replace(bench, pool=pool, study=f"study-{next(numbers)}")
    context = other.trial(BASELINE.with_value(SETTING, name))
    context.gate = lambda _: SHORT
    context.stage = Stage.RECORD
    context.payloads[Stage.CHECK] = {"sources": ["prefill: 0.5.22, files:aa"]}
    return context


def make(context: TrialContext, **changes: Any) -> Path:
    """The layout's files, as a recording of earlier would have left them."""
    (named,) = layouts_of(context)
    folder = Path(named.folder)
    folder.mkdir(parents=True)
    Path(named.file).write_text('{"physical_to_logical_map": [[0]]}')
    sha256 = hashlib.sha256(Path(named.file).read_bytes()).hexdigest()
    fitted = {"sha256": sha256, "layers": 1, "experts": 1, "slots": 1, "tokens": 9, "before": 0.5, "after": 0.9}
    made = {"purpose": purpose(context, named), "recorded": {"requests": 4}, "fitted": fitted, **changes}
    Path(named.origin).write_text(json.dumps(made))
    return folder


def test_a_recording_that_does_not_fit_is_not_begun(bench: Bench) -> None:
    """It asks for its time before it touches anything."""
    context = wanting(bench, "late")
    assert record(context, {}) == Waiting(why=SHORT.reason)
    assert [job for host in bench.hosts.values() for job in host.jobs() if context.plan.study_id in job.job_id] == []


def test_a_layout_that_stands_takes_no_time(bench: Bench) -> None:
    """Neither recorded nor fitted again, however short the authorization is; the trial says what it will load."""
    context = wanting(bench, "stands")
    make(context)
    recorded = record(context, {})
    assert isinstance(recorded, Done)
    assert recorded.note == "every layout was fitted before"
    fitted = fit(context, {})
    assert isinstance(fitted, Done)
    assert fitted.note.endswith("fitted on 4 requests, predicted balancedness 0.500 → 0.900, fitted before")
    assert fitted.payload["artifacts"] == []


def test_another_installation_than_the_recorded_one_is_refused(bench: Bench) -> None:
    """The build that the host-side check found is part of what a layout is for."""
    context = wanting(bench, "other-build")
    make(context)
    context.payloads[Stage.CHECK] = {"sources": ["prefill: 0.5.23, files:bb"]}
    refused = record(context, {})
    assert isinstance(refused, Faulted)
    assert (refused.reason, refused.configuration_caused) == (Reason.CONTRACT_MISMATCH, True)
    assert "was recorded with another build" in refused.detail


def test_a_damaged_origin_is_said_with_its_place(bench: Bench) -> None:
    """Nothing is guessed about a layout whose making cannot be read."""
    context = wanting(bench, "damaged")
    make(context, fitted=None)
    with pytest.raises(HostError, match=r"origin\.json is damaged"):
        record(context, {})
