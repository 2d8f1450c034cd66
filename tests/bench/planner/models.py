"""Language models of the benchmark, scripted on what the prompt says: one sensible, one that proposes badly, one down.

They know no more than a real model would: the document of the prompt. What they answer passes the product's ladder,
mapping and admission.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from agent.llm import ChatUnavailable, Message, ScriptedModel
from agent.llm.scripted import Scripted
from agent.planner.llm_proposer import LlmProposer
from agent.planner.prompt import read_document

Document = dict  # as read from JSON


def sensible() -> LlmProposer:
    return LlmProposer(ScriptedModel(_sensible))


def bad() -> LlmProposer:
    return LlmProposer(ScriptedModel(_bad))


def down() -> LlmProposer:
    return LlmProposer(ScriptedModel(lambda _: ChatUnavailable("the LLM endpoint is away: status 503")))


MODELS: dict[str, Callable[[], LlmProposer]] = {"sensible": sensible, "bad": bad, "down": down}


def _sensible(messages: Sequence[Message]) -> Scripted:
    """Follows the best suggestion, but looks once at each knob that relieves the first wall and was never turned.

    Where the best one turns two knobs it says nothing, and the program runs it.
    """
    document = read_document(messages)
    wall = document["walls"][0]
    turned = {outcome["knob"] for outcome in document["outcomes"]}
    found = [
        (knob["path"], value)
        for knob in document["knobs"]
        if wall["wall"] in knob["relieves"] and knob["path"] not in turned
        for value in _next(knob)
    ]
    suggestions = document["suggestions"]
    if suggestions and "with" in suggestions[0] and not found:
        return {"note": "the pair is the best that is left", "cards": []}
    suggested = [(s["knob"], s["to_value"]) for s in suggestions if "with" not in s]
    chosen = dict.fromkeys((*suggested[:1], *found, *suggested[1:]))
    cards = [_card(document, path, value, wall["wall"], gain=(0, 20), probability=0.5) for path, value in chosen]
    return {"note": f"the wall is {wall['wall']}", "cards": cards[:3]}


def _bad(messages: Sequence[Message]) -> Scripted:
    """Sure of itself: the farthest untried value of the knobs that no mechanism speaks for, last knob first."""
    document = read_document(messages)
    wall = document["walls"][0]["wall"]
    knobs = sorted(document["knobs"], key=lambda knob: wall in knob["relieves"])
    found = [(knob["path"], value) for knob in reversed(knobs) for value in _farthest(knob)]
    cards = [
        _card(document, path, value, wall, gain=(40, 90), probability=0.97, invented=place == 0)
        for place, (path, value) in enumerate(found[:3])
    ]
    return {"note": "trust me", "cards": cards}


def _next(knob: Document) -> Iterable[str]:
    """The untried value after the current one."""
    values, tried = knob["values"], {*knob["tried"], knob["current"]}
    if knob["current"] in values:
        place = values.index(knob["current"])
        return [v for v in values[place + 1 : place + 2] if v not in tried]
    return []


def _farthest(knob: Document) -> Iterable[str]:
    values, tried = knob["values"], {*knob["tried"], knob["current"]}
    if knob["current"] not in values:
        return []
    place = values.index(knob["current"])
    open_values = [v for v in values if v not in tried]
    return sorted(open_values, key=lambda v: -abs(values.index(v) - place))[:1]


def _card(
    document: Document,
    path: str,
    value: str,
    wall: str,
    *,
    gain: tuple[float, float],
    probability: float,
    invented: bool = False,
) -> Document:
    observed = {figure["id"]: figure["value"] for figure in document["figures"]}
    ids = [name for name in document["walls"][0]["figures"] if name in observed] or ["objective.value"]
    evidence = [{"id": name, "value": observed[name]} for name in ids]
    if invented:
        evidence = [{"id": "prefill.secret_sauce", "value": 42.0}]
    return {
        "knob": path,
        "to_value": value,
        "wall": wall,
        "mechanism": "scripted for the benchmark",
        "evidence": evidence,
        "gain_low_percent": gain[0],
        "gain_high_percent": gain[1],
        "probability": probability,
        "if_promising": "confirm it",
        "if_negative": "close it",
    }
