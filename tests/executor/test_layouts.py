"""What the name of an expert layout means for the commands, and what a layout was made for."""

from __future__ import annotations

import pytest

from executor.engines.attestation import attest
from executor.layouts import (
    RECORDER,
    RECORDER_FOLDER,
    differences,
    named_layouts,
    place_layouts,
    purpose_of,
    recording_config,
)
from executor.pool import Pool, check_fit, parse_pool
from experiments.baseline import parse_baseline
from experiments.errors import InputError
from experiments.goal import parse_goal
from experiments.serving_config import Kind, Path, Role, ServingConfig, Value
from tests.acceptance.goal_text import baseline_text, goal_text
from tests.executor.stage_bench import GOAL

POOL = """\
name: pool-1
cards: {prefill: 8, decode: 8}
hosts:
  p0: {role: prefill, ssh: p0}
  d0: {role: decode, ssh: d0, workdir: /other}
router: {on: p0}
client: {on: p0, model_path: /models/m}
workdir: /work
layouts:
  fitted-16k:
    record: {requests: 32}
    fit: {redundant_experts: 16}
  plain: {}
"""
BASE = parse_baseline(baseline_text(), "baseline.yaml")


def pool(text: str = POOL) -> Pool:
    return parse_pool(text, "pool.yaml")


def with_layout(value: Value, role: Role = Role.PREFILL, kind: Kind = Kind.LAYOUT) -> ServingConfig:
    return BASE.with_value(Path(role, kind, "init-expert-location"), value)


@pytest.mark.parametrize("kind", [Kind.LAYOUT, Kind.FLAG])
def test_a_name_becomes_a_file_and_the_slots_that_it_needs(kind: Kind) -> None:
    """Below the work directory of the role's own host, whichever way the knob writes it."""
    placed = place_layouts(pool(), with_layout("fitted-16k", Role.DECODE, kind))
    assert placed.of(Role.DECODE, kind)["init-expert-location"] == "/other/layouts/decode.fitted-16k/layout.json"
    assert placed.of(Role.DECODE, Kind.FLAG)["ep-num-redundant-experts"] == 16
    assert "ep-num-redundant-experts" not in placed.of(Role.PREFILL, Kind.FLAG)


@pytest.mark.parametrize("value", [None, "trivial", "/data/x.json", "x.pt", '{"physical_to_logical_map": []}'])
def test_what_is_no_name_stays_as_it_is(value: Value) -> None:
    """A file, a word of the engine, a placement that is written out, nothing."""
    config = with_layout(value)
    assert place_layouts(pool(), config) == config
    assert named_layouts(pool(), config) == ()


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    """The engine would take it for a placement and die at its launch."""
    with pytest.raises(InputError, match="layout 'fitted-17k' is not under layouts; there are: fitted-16k, plain"):
        place_layouts(pool(), with_layout("fitted-17k"))


def test_the_goal_names_only_layouts_that_the_pool_has() -> None:
    """Said by `tuneloop check`, long before a card."""
    knob = "  - {role: prefill, layout: init-expert-location, values: [null, %s], cost: restart}\n"
    check_fit(pool(), parse_goal(goal_text() + knob % "fitted-16k", "goal.yaml"), "pool.yaml")
    with pytest.raises(InputError, match="layout 'other' is not under layouts"):
        check_fit(pool(), parse_goal(goal_text() + knob % "other", "goal.yaml"), "pool.yaml")


def test_another_number_of_redundant_experts_is_refused() -> None:
    """A layout has its slots; two numbers would be two layouts."""
    config = with_layout("fitted-16k").with_value(Path.parse("prefill.flag.ep-num-redundant-experts"), 32)
    with pytest.raises(InputError, match="is 32, the layout fitted-16k has 16"):
        place_layouts(pool(), config)


def test_a_layout_is_not_named_like_a_word_of_the_engine() -> None:
    """`trivial` would never be made."""
    with pytest.raises(InputError, match="a layout is named"):
        pool(POOL + "  trivial: {}\n")


def test_the_recording_service_has_the_recorder_and_no_layout() -> None:
    """One side records, the other is what it was."""
    config = with_layout("fitted-16k")
    recording = recording_config(config, named_layouts(pool(), config))
    assert recording.of(Role.PREFILL, Kind.FLAG)[RECORDER] == "stat"
    assert recording.of(Role.PREFILL, Kind.ENV)[RECORDER_FOLDER] == "/work/layouts/prefill.fitted-16k/recorded"
    assert named_layouts(pool(), recording) == ()
    assert recording.fingerprint(Role.DECODE) == BASE.fingerprint(Role.DECODE)
    assert recording.fingerprint(Role.PREFILL) != BASE.fingerprint(Role.PREFILL)


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("prefill.flag.tp-size", 8, ["topology"]),
        ("prefill.flag.moe-a2a-backend", "none", ["topology"]),
        ("prefill.flag.prefill-max-requests", 3, []),
        ("decode.flag.tp-size", 8, []),
    ],
)
def test_a_layout_is_for_one_topology_and_any_other_setting(path: str, value: Value, expected: list[str]) -> None:
    """What decides which rank holds a slot; a later card may change the rest and keep the layout."""
    config = with_layout("fitted-16k")
    (named,) = named_layouts(pool(), config)
    before = purpose_of(pool(), config, GOAL.scenario, named, "prefill: 0.5.22, files:aa")
    other = purpose_of(
        pool(), config.with_value(Path.parse(path), value), GOAL.scenario, named, "prefill: 0.5.22, files:aa"
    )
    assert differences(before, other) == expected


def test_a_layout_is_for_one_model_build_workload_and_way_of_making() -> None:
    """Each of them alone makes it another; an installation that was not observed does not."""
    config = with_layout("fitted-16k")
    (named,) = named_layouts(pool(), config)
    known = purpose_of(pool(), config, GOAL.scenario, named, "prefill: 0.5.22, files:aa")
    moved = pool(POOL.replace("/models/m", "/models/n"))
    assert differences(known, purpose_of(moved, config, GOAL.scenario, named, "prefill: 0.5.22, files:aa")) == ["model"]
    assert differences(known, purpose_of(pool(), config, GOAL.scenario, named, "prefill: 0.5.23, files:bb")) == [
        "build"
    ]
    assert differences(known, purpose_of(pool(), config, GOAL.scenario, named, None)) == []
    longer = GOAL.scenario.model_copy(update={"output_tokens": 2048})
    assert differences(known, purpose_of(pool(), config, longer, named, None)) == ["workload"]
    asked = pool(POOL.replace("requests: 32", "requests: 33"))
    (other,) = named_layouts(asked, config)
    assert differences(known, purpose_of(asked, config, GOAL.scenario, other, None)) == ["asked"]


def test_a_recorder_that_nobody_asked_for_is_a_mismatch() -> None:
    """It costs time in every step of a run that is to be measured."""
    body = {"disaggregation_mode": "prefill", "expert_distribution_recorder_mode": "stat"}
    found = attest(body, ServingConfig(settings={}), Role.PREFILL)
    assert [str(m) for m in found.mismatches] == [
        "expert-distribution-recorder-mode: wanted absent, server reports stat"
    ]
    assert attest({**body, "expert_distribution_recorder_mode": None}, ServingConfig(settings={}), Role.PREFILL).matches
