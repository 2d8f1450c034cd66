"""What the runs let one expect: the slowest part is the rate, limits are learned, and what cannot start is known."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.planner.feasibility import Feasibility
from agent.planner.gaussian_process import Axis
from agent.planner.moves import bundle_moves, is_near, single_moves
from agent.planner.packet import EvidencePacket, KnobPart, ObservationPart, OutcomePart, Side
from agent.planner.surrogate import Surrogate
from experiments.serving_config import Value
from tests.agent.planner.test_rules import packet

__all__ = ["packet"]

SIZES = (4, 8, 16, 32, 64, 128)


def knob(role: str, name: str, values: tuple[Value, ...], current: Value, tried: tuple[Value, ...] = ()) -> KnobPart:
    return KnobPart(
        path=f"{role}.flag.{name}",
        role=role,
        kind="flag",
        name=name,
        current=current,
        values=values,
        cost="restart",
        alters_numerics=False,
        relieves=(),
        mechanism="",
        tried=tried,
    )


def seen(*values: Value, rate: float | None = 10.0, side: Side = Side.DECODE, share: float = 0.5) -> ObservationPart:
    return ObservationPart(
        values=values,
        runs=1,
        objective=rate,
        limits=(None if rate is None else share, None),
        side=side,
        infeasible=rate is None,
    )


def with_space(
    packet: EvidencePacket,
    knobs: tuple[KnobPart, ...],
    observations: tuple[ObservationPart, ...],
    outcomes: tuple[OutcomePart, ...] = (),
) -> EvidencePacket:
    return packet.model_copy(update={"knobs": knobs, "observations": observations, "outcomes": outcomes})


P = knob("prefill", "p", (1, 2, 3), 1)
D = knob("decode", "d", (1, 2, 3), 1)


def test_a_change_of_the_side_that_does_not_bind_promises_nothing(packet: EvidencePacket) -> None:
    """Decode was bound in every run, so turning prefill cannot raise what the slower side gives."""
    found = Surrogate(with_space(packet, (P, D), (seen(1, 1), seen(1, 2, rate=13.0)))).outlooks([(2, 1), (1, 3)])

    assert found[0].gain_high < 0.03 < found[1].gain_high


def test_what_a_knob_did_speaks_for_other_configurations(packet: EvidencePacket) -> None:
    """A loss that was measured on one layout is expected on another."""
    layout = knob("decode", "layout", ("a", "b"), "b")
    runs = (seen("a", 1, rate=10.0), seen("a", 2, rate=5.0), seen("b", 1, rate=12.0))
    space = with_space(packet, (layout, D), runs)

    (worse,) = Surrogate(space).outlooks([("b", 2)])

    assert worse.gains < 0.1


def test_a_limit_that_a_value_broke_is_expected_to_break_again(packet: EvidencePacket) -> None:
    """The probability to keep the limits falls where the same value went beyond one."""
    runs = (seen(1, 1), seen(1, 3, rate=12.0, share=1.4))

    broke, other = Surrogate(with_space(packet, (P, D), runs)).outlooks([(2, 3), (2, 1)])

    assert broke.keeps_limits < 0.2 < 0.8 < other.keeps_limits


def test_one_packet_gives_one_outlook(packet: EvidencePacket) -> None:
    """Nothing is drawn at random."""
    space = with_space(packet, (P, D), (seen(1, 1), seen(1, 2, rate=11.0)))

    assert Surrogate(space).outlooks([(1, 3), (2, 2)]) == Surrogate(space).outlooks([(1, 3), (2, 2)])


def feasibility(*observations: ObservationPart, needs: dict[int, int] | None = None) -> Feasibility:
    axes = [Axis(("a", "b")), Axis(SIZES)]
    return Feasibility(axes, {Side.DECODE: (0, 1)}, observations, needs or {})


def chance(model: Feasibility, layout: str, size: int) -> float:
    import numpy as np

    axes = [Axis(("a", "b")), Axis(SIZES)]
    return float(model.at(np.array([[axes[0].place(layout), axes[1].place(size)]]))[0])


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(SIZES[1:-1]), st.sampled_from(SIZES))
def test_more_of_what_did_not_fit_does_not_fit(failed: int, asked: int) -> None:
    """One size ran and a larger one did not: then no size beyond that starts, and none below the first is in doubt."""
    ran = SIZES[SIZES.index(failed) - 1]
    model = feasibility(seen("a", ran), seen("a", failed, rate=None))

    if asked >= failed:
        assert chance(model, "a", asked) == 0.0
    elif asked <= ran:
        assert chance(model, "a", asked) == 1.0


def test_which_way_a_knob_needs_more_is_learned_from_a_pair() -> None:
    """Without such a pair nothing certain is said of another size."""
    alone = feasibility(seen("a", 64, rate=None))

    assert 0.0 < chance(alone, "a", 128) < 1.0
    assert 0.0 < chance(feasibility(seen("a", 32), seen("a", 64, rate=None)), "b", 64) < 1.0


def test_far_jumps_of_a_numeric_knob_are_no_moves(packet: EvidencePacket) -> None:
    """Two declared values at most; names have no distance."""
    sizes, layout = knob("decode", "d", SIZES, 16), knob("decode", "layout", ("a", "b", "c"), "a")

    assert [v for v in SIZES if v != 16 and is_near(sizes, v)] == [4, 8, 32, 64]
    moves = single_moves(with_space(packet, (sizes, layout), ()))
    assert {(m[0].knob.name, m[0].value) for m in moves} >= {("layout", "b"), ("layout", "c"), ("d", 64)}


def stopped(path: str, value: Value, reason: str) -> OutcomePart:
    return OutcomePart(
        card="c",
        change="",
        path=path,
        to_value=value,
        route="valid_negative",
        reason=reason,
        gain=None,
        source="rules",
        in_scope=True,
        suspect=False,
    )


def test_what_did_not_fit_is_paired_with_what_gives_room(packet: EvidencePacket) -> None:
    """A layout that ran out of memory is offered again with a smaller size, never with a larger one."""
    layout, sizes = knob("decode", "layout", ("a", "b"), "a", ("b",)), knob("decode", "d", SIZES, 64)
    space = with_space(packet, (layout, sizes), (), (stopped("decode.flag.layout", "b", "infeasible"),))

    pairs = bundle_moves(space, lambda setting: isinstance(setting.value, int) and setting.value < 64)

    assert {tuple(s.value for s in pair) for pair in pairs} == {("b", v) for v in SIZES if v < 64}


def test_untried_parts_are_no_bundle(packet: EvidencePacket) -> None:
    """Where no limit stopped anything and nothing was tried, there is nothing to pair."""
    assert bundle_moves(with_space(packet, (P, D), (seen(1, 1),)), lambda _: True) == []


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(1, 4096), min_size=3, max_size=9, unique=True))
def test_places_of_a_numeric_knob_keep_its_order(values: list[int]) -> None:
    """From 0 to 1, in logarithms."""
    axis = Axis(tuple(values))
    places = [axis.place(v) for v in sorted(values)]

    assert places == sorted(places)
    assert (places[0], places[-1]) == (0.0, 1.0)
    assert all(map(math.isfinite, places))
