"""Packets for the planner's tests: the one that the shipped goal gives, and changes of it."""

from __future__ import annotations

from datetime import timedelta
from functools import cache

from agent.planner.evidence import assemble_packet
from agent.planner.packet import EvidencePacket, OutcomePart
from experiments.study import Study, fold
from tests.factories import EVENING, Night, a_night

ALLOWED = ("hot", "restart")


def packet_of(study: Study, **changes: object) -> EvidencePacket:
    packet = assemble_packet(study, EVENING + timedelta(hours=1), allowed_costs=ALLOWED)
    return packet.model_copy(update=changes)


@cache
def a_study() -> Study:
    """Right after its baseline: the next step is a proposal."""
    night = Night(ideas=())
    return fold([entry for entry in night.run() if entry.kind != "study_stopped"])


@cache
def a_late_study() -> Study:
    """With closed cards of every route."""
    return fold(a_night(settle_held=True))


def a_packet(**changes: object) -> EvidencePacket:
    return packet_of(a_study(), **changes)


def an_outcome(number: int, *, in_scope: bool = False) -> OutcomePart:
    return OutcomePart(
        card=f"c{number:02d}-max-running-requests-{number}",
        change=f"decode max-running-requests 128 → {number}",
        path="decode.flag.max-running-requests",
        to_value=number,
        route="valid_negative",
        reason="slower",
        gain=-number / 1000,
        source="rules",
        in_scope=in_scope,
        suspect=not in_scope,
    )


CARD = {
    "knob": "prefill.flag.prefill-max-requests",
    "to_value": "2",
    "wall": "prefill_supply",
    "mechanism": "One request per batch leaves 4-token tails.",
    "evidence": [{"id": "prefill.lone_tail_share", "value": 0.3333}],
    "gain_low_percent": 5,
    "gain_high_percent": 35,
    "probability": 0.7,
    "if_promising": "confirm it",
    "if_negative": "close it",
}


def an_answer(*cards: dict[str, object], note: str = "prefill binds") -> dict[str, object]:
    return {"note": note, "cards": list(cards)}
