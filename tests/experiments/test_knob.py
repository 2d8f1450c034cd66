"""Knobs: one setting each, values of one type, and grids that hold both ends."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from experiments.knob import Cost, Knob, SearchSpace
from experiments.serving_config import Kind, Path, Role, ServingConfig


def knob(**fields: object) -> Knob:
    return Knob.model_validate({"role": "decode", "flag": "max-running-requests", "cost": "restart"} | fields)


def client(**fields: object) -> Knob:
    return Knob.model_validate({"role": "client", "cost": "hot"} | fields)


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"role": "prefill", "flag": "prefill-max-requests"}, "prefill.flag.prefill-max-requests"),
        ({"role": "decode", "env": "HCCL_BUFFSIZE"}, "decode.env.HCCL_BUFFSIZE"),
        ({"role": "prefill", "layout": "init-expert-location"}, "prefill.layout.init-expert-location"),
        ({"role": "both", "build": "source", "cost": "rebuild"}, "both.build.source"),
        ({"role": "client", "param": "concurrency"}, "client.client.concurrency"),
    ],
)
def test_path_follows_the_kind(fields: dict[str, object], path: str) -> None:
    """Each kind of knob turns the setting at its own path."""
    found = Knob.model_validate({"cost": "restart", "values": [1, 2]} | fields)
    assert found.path == Path.parse(path)


def test_grid_of_a_range_holds_both_ends() -> None:
    """A range without a step is a grid of nine whole points."""
    assert client(param="concurrency", range=[32, 160]).candidates() == (
        32, 48, 64, 80, 96, 112, 128, 144, 160,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"range": [32, 100], "step": 32}, (32, 64, 96, 100)),
        ({"range": [1, 256], "log": True}, (1, 2, 4, 8, 16, 32, 64, 128, 256)),
        ({"range": [1, 3]}, (1, 2, 3)),
        ({"range": [0.5, 0.9], "step": 0.1}, (0.5, 0.6, 0.7, 0.8, 0.9)),
    ],
)
def test_grid_follows_step_and_scale(fields: dict[str, object], expected: tuple[float, ...]) -> None:
    """A step is counted from the low end; a log range is spaced by a factor; short ranges have no doubles."""
    assert knob(**fields).candidates() == expected


@settings(deadline=None)
@given(
    low=st.integers(0, 10_000),
    width=st.integers(1, 10_000),
    step=st.none() | st.integers(1, 5000),
    log=st.booleans(),
)
def test_candidates_of_a_range_are_allowed_whole_and_ordered(low: int, width: int, step: int | None, log: bool) -> None:
    """Every candidate of a whole range is a whole number of it, in order, both ends among them."""
    low += 1
    fields = {"range": [low, low + width], "log": log} | ({"step": step} if step else {})
    found = knob(**fields)
    points = found.candidates()
    assert (points[0], points[-1]) == (low, low + width)
    assert sorted(set(points)) == list(points)  # type: ignore[type-var]
    assert [p for p in points if not found.contains(p)] == []


@pytest.mark.parametrize(
    ("fields", "value", "expected"),
    [
        ({"values": [1, 2]}, 2, True),
        ({"values": [1, 2]}, 3, False),
        ({"values": [1, 2]}, True, False),
        ({"values": [1, 2]}, 2.0, False),
        ({"values": [1, None]}, None, True),
        ({"values": [1, 2]}, None, False),
        ({"range": [1, 4]}, 3, True),
        ({"range": [1, 4]}, 3.0, False),
        ({"range": [1, 4]}, 5, False),
        ({"range": [1, 4]}, "3", False),
        ({"range": [1, 4]}, None, False),
        ({"range": [32, 100], "step": 32}, 64, True),
        ({"range": [32, 100], "step": 32}, 65, False),
        ({"range": [32, 100], "step": 32}, 100, True),
        ({"range": [0.1, 0.9]}, 0.55, True),
        ({"range": [0.1, 0.9]}, 1, False),
    ],
)
def test_only_allowed_values_of_the_right_type_are_in(
    fields: dict[str, object], value: bool | float | str | None, expected: bool
) -> None:
    """`True` is not 1, 2.0 is not 2, and absent is allowed only where it is listed."""
    assert knob(**fields).contains(value) is expected


def test_whole_numbers_beside_real_ones_are_real() -> None:
    """The values of one knob have one type; a rate is always real."""
    assert [type(v) for v in knob(values=[0.8, 1]).candidates()] == [float, float]
    assert [type(v) for v in client(param="rate", values=[3, 6, None]).candidates()] == [float, float, type(None)]
    assert client(param="rate", range=[3, 6]).contains(4.5)


def test_values_survive_json() -> None:
    """A stored knob has the same values and the same types."""
    for found in (knob(values=[0.8, 1]), client(param="rate", range=[3, 6]), knob(values=["a", None])):
        again = Knob.model_validate_json(found.model_dump_json())
        assert [(type(v), v) for v in again.candidates()] == [(type(v), v) for v in found.candidates()]


def test_current_value_is_the_setting_or_what_its_absence_means() -> None:
    """An absent setting reads as the knob's default; a `both` knob reads the prefill side."""
    config = ServingConfig(settings={"prefill.flag.tp-size": 16, "decode.flag.tp-size": 8})
    assert knob(values=[1, 2], default=48).current(config) == 48
    assert type(knob(values=[0.8, 0.9], default=1).current(config)) is float
    assert knob(role="both", flag="tp-size", values=[8, 16]).current(config) == 16


def test_allowed_values_are_shown_for_people() -> None:
    """Messages list the values, or the ends and the step of a range."""
    assert knob(values=[1, None]).shown() == "[1, unset]"
    assert knob(range=[32, 160], step=16).shown() == "32 to 160, step 16"


def test_both_sides_are_turned_together_or_not_at_all() -> None:
    """One side of a `both` knob is no knob of its own, though it is written by it; other roles are not."""
    found = knob(role="both", values=[1, 2])
    space = SearchSpace(knobs=(found,))
    paths = [Path(role, Kind.FLAG, "max-running-requests") for role in (Role.BOTH, Role.DECODE, Role.ROUTER)]
    assert [space.knob(path) for path in paths] == [found, None, None]
    assert [space.writer(path) for path in paths] == [found, found, None]


@pytest.mark.parametrize(
    "fields",
    [
        {"values": []},
        {"values": [1, "a"]},
        {"values": [1, 1]},
        {"values": [1], "step": 1},
        {"range": [2, 2]},
        {"range": [0, 8], "log": True},
        {"range": [0, 8], "step": 0},
        {"range": [1, float("inf")]},
        {"values": [1], "flag": "-v"},
        {"values": [1], "flag": "x; rm -rf /"},
        {"values": [1], "flag": None, "env": "A=B"},
        {"values": [1], "role": "router", "flag": None, "layout": "init-expert-location"},
    ],
)
def test_knobs_without_one_meaning_are_refused(fields: dict[str, object]) -> None:
    """Empty, mixed, doubled or unordered values, and names that are no names, are refused."""
    with pytest.raises(ValidationError):
        knob(**fields)


@pytest.mark.parametrize("fields", [{"build": "source", "flag": None}, {"cost": "rebuild"}])
def test_another_build_always_costs_a_rebuild(fields: dict[str, object]) -> None:
    """So it never starts without an approval, and nothing else asks for one by mistake."""
    with pytest.raises(ValidationError, match="another build, and only that, is cost: rebuild"):
        knob(values=[1, 2], **fields)


def test_space_is_never_empty_or_ambiguous() -> None:
    """No study without a knob, and no two knobs for one setting."""
    with pytest.raises(ValidationError, match="at least 1 item"):
        SearchSpace(knobs=())
    with pytest.raises(ValidationError, match=r"already turned by knobs\[0\]"):
        SearchSpace(knobs=(knob(values=[1, 2]), knob(role="both", values=[1, 2])))


def test_costs_are_ordered_cheapest_first() -> None:
    """Hot comes before restart, restart before rebuild."""
    assert list(Cost) == [Cost.HOT, Cost.RESTART, Cost.REBUILD]
