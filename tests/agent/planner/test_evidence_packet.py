"""The evidence packet: every figure has an id, and nothing in it comes from a log or names a place."""

from __future__ import annotations

from datetime import timedelta

from agent.planner.evidence import assemble_packet, incumbent_figures
from experiments.card import Wall
from experiments.ledger import LedgerEntry
from experiments.study import fold
from tests.factories import EVENING, a_night, an_opening

COSTS = ("hot", "restart")


def packet_after(entries: list[LedgerEntry]):
    return assemble_packet(fold(entries), EVENING + timedelta(hours=2), allowed_costs=COSTS)


def baseline_entries() -> list[LedgerEntry]:
    """The night up to its first card: the incumbent was measured, nothing was proposed."""
    entries = list(a_night())
    first = next(i for i, entry in enumerate(entries) if entry.kind == "card_admitted")
    return entries[:first]


def test_a_packet_names_the_binding_wall_with_the_figures_that_say_so() -> None:
    """A standing prefill queue beside an empty decode queue is a prefill-supply wall."""
    wall = packet_after(baseline_entries()).walls[0]

    assert wall.wall is Wall.PREFILL_SUPPLY
    assert "prefill.waiting.share_positive" in wall.figures


def test_every_figure_that_a_wall_cites_is_in_the_packet() -> None:
    """A proposer can cite what the wall rests on."""
    packet = packet_after(baseline_entries())

    for wall in packet.walls:
        for name in wall.figures:
            assert packet.figures[name] is not None


def test_one_ledger_gives_one_packet() -> None:
    """The packet is a pure function of ledger and time."""
    assert packet_after(baseline_entries()).digest == packet_after(baseline_entries()).digest


def test_an_unmeasured_study_has_no_figures_and_no_known_wall() -> None:
    """What was not observed is not claimed."""
    packet = packet_after([an_opening()])

    assert [wall.wall for wall in packet.walls] == [Wall.UNKNOWN]
    assert all(value is None for value in packet.figures.values())


def test_the_slo_headroom_is_a_figure() -> None:
    """Each constraint shows as a share of its limit."""
    figures = incumbent_figures(fold(baseline_entries()))

    assert 0 < (figures["slo.tpot_mean.share_of_limit"] or 0) < 1


def test_a_value_that_a_kept_change_left_behind_counts_as_tried() -> None:
    """Going back to what was just measured as worse is no idea."""
    packet = packet_after(list(a_night()))

    knob = next(k for k in packet.knobs if k.name == "prefill-max-requests")
    assert knob.current == 2
    assert 1 in knob.tried


def test_outcomes_say_whether_they_still_bind() -> None:
    """A negative on an earlier configuration is suspect, not binding."""
    packet = packet_after(list(a_night()))
    here = [o for o in packet.outcomes if o.in_scope]

    assert all(not o.suspect for o in here)
    assert any(not o.in_scope for o in packet.outcomes)
