"""The evidence packet as the plain document that a model is shown, and the way back from its texts to values.

Built from typed fields: what could carry a private name (a card's name, the prose of a change) is not copied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent.planner.packet import EvidencePacket, KnobPart, OutcomePart
from agent.planner.redaction import WITHHELD, Redactor
from experiments.admission import Code
from experiments.card import CardDraft
from experiments.serving_config import Value

NOT_OBSERVED = "NOT_OBSERVED"

# Caps of free text in characters, and of lists in lines. All of it together stays below 16 KB a person's text.
SENTENCE_CHARS = 400
STEERING_CHARS, STEERING_LINES = 300, 10
OBJECTION_CHARS, OBJECTION_LINES = 400, 12
SHOWN_VALUES = 24

Document = dict[str, object]


class PacketDocument:
    """One packet, seen through one redactor."""

    def __init__(self, packet: EvidencePacket, redactor: Redactor) -> None:
        self._written = {knob.path: _written_values(knob, redactor) for knob in packet.knobs}
        self._packet = packet
        self._redactor = redactor.knowing(self._stand_ins(redactor))

    @property
    def choices(self) -> dict[str, dict[str, Value]]:
        """The real value behind every text that stands for one, by knob path."""
        return {path: {text: typed[1] for typed, text in written.items()} for path, written in self._written.items()}

    def rows(self, outcomes: Sequence[OutcomePart], left_out: int) -> Document:
        packet = self._packet
        return {
            "objective": self._objective(),
            "noise": {
                "relative_sd": rounded(packet.noise.relative_sd),
                "repeats": packet.noise.repeats,
                "smallest_visible_gain": rounded(packet.noise.smallest_visible_gain),
            },
            "pool": "simulated" if packet.simulated else "real",
            "budget": {
                "trials_left": packet.budget.trials_left,
                "hours_left": rounded(packet.budget.hours_left),
                "allowed_costs": [self._say(cost) for cost in packet.budget.allowed_costs],
            },
            "walls": self._walls(),
            "figures": [
                {"id": self._say(name), "value": figure_value(value)}
                for name, value in packet.figures.items()
                if value is not None
            ],
            "not_observed": [self._say(name) for name, value in packet.figures.items() if value is None],
            "knobs": [self._knob(knob) for knob in packet.knobs],
            "incumbent": self._incumbent(),
            "suggestions": [self._suggestion(draft) for draft in packet.suggestions],
            "outcomes": [self.outcome(outcome) for outcome in outcomes],
            "outcomes_left_out": left_out,
            "steering": [self._redactor.text(line, STEERING_CHARS) for line in packet.steering[-STEERING_LINES:]],
        }

    def objections(self) -> list[str]:
        """What was refused about the last answer. It may quote that answer, so it is data as well.

        Why a change was refuted is left out: that sentence can quote a server's log.
        """
        lines = self._packet.objections[-OBJECTION_LINES:]
        known = [line.partition(" (")[0] if line.startswith(Code.REFUTED) else line for line in lines]
        return [self._redactor.text(line, OBJECTION_CHARS) for line in known]

    def outcome(self, outcome: OutcomePart) -> Document:
        return {
            "knob": self._say(outcome.path),
            "to_value": self._value(outcome.path, outcome.to_value),
            **self._with(outcome.also),
            "route": self._say(outcome.route),
            "reason": self._say(outcome.reason),
            "gain_percent": NOT_OBSERVED if outcome.gain is None else rounded(100 * outcome.gain),
            "scope": "in" if outcome.in_scope else "suspect" if outcome.suspect else "out",
            "source": self._say(outcome.source),
            **({"changed_since": [self._say(name) for name in outcome.new_evidence]} if outcome.new_evidence else {}),
        }

    def _stand_ins(self, redactor: Redactor) -> dict[str, str]:
        """What is withheld elsewhere in the packet is withheld in its sentences too."""
        incumbent = self._packet.incumbent.items()
        settings = [value for path, value in incumbent if redactor.setting(path, value) == WITHHELD]
        # One plain word ("auto") is no name that could be told from prose.
        stand_ins = {v: f"[{WITHHELD}]" for v in settings if isinstance(v, str) and not v.isalpha()}
        for written in self._written.values():
            options = {typed[1]: text for typed, text in written.items() if text != value_text(typed[1])}
            stand_ins |= {value: text for value, text in options.items() if isinstance(value, str)}
        return stand_ins

    def _say(self, text: str) -> str:
        return self._redactor.text(text, SENTENCE_CHARS)

    def _objective(self) -> Document:
        objective = self._packet.objective
        return {
            "metric": self._say(objective.metric),
            "window": self._say(objective.window),
            "direction": self._say(objective.direction),
            "target": None if objective.target is None else self._say(objective.target),
            "constraints": [self._say(constraint) for constraint in objective.constraints],
            "scenario": self._say(objective.scenario),
            "smallest_useful_gain": objective.min_effect,
            "confidence": objective.confidence,
        }

    def _walls(self) -> list[Document]:
        return [
            {
                "wall": wall.wall,
                "strength": rounded(wall.strength),
                "figures": [self._say(figure) for figure in wall.figures],
                "sentence": self._say(wall.sentence),
            }
            for wall in self._packet.walls
        ]

    def _knob(self, knob: KnobPart) -> Document:
        """`current` and `tried` are written exactly as they stand in `values`."""
        written = self._written[knob.path]
        shown = _some(knob.values)
        return {
            "path": knob.path,
            "current": written[_typed(knob.current)],
            "values": [written[_typed(value)] for value in shown],
            **({"values_left_out": len(knob.values) - len(shown)} if len(shown) < len(knob.values) else {}),
            "cost": knob.cost,
            "alters_numerics": knob.alters_numerics,
            "relieves": list(knob.relieves),
            "mechanism": self._say(knob.mechanism),
            "tried": [written[_typed(value)] for value in knob.tried],
        }

    def _incumbent(self) -> Document:
        """The settings that no knob turns; those of the knobs are told with the knobs."""
        turned = {path for knob in self._packet.knobs for path in _settings_of(knob.path)}
        return {
            self._say(path): self._redactor.setting(path, value)
            for path, value in self._packet.incumbent.items()
            if path not in turned
        }

    def _suggestion(self, draft: CardDraft) -> Document:
        path, also = str(draft.change.path), draft.change.also
        return {
            "source": draft.source,
            "knob": self._say(path),
            "to_value": self._value(path, draft.change.to_value),
            **self._with(None if also is None else (str(also.path), also.to_value)),
            "wall": draft.wall,
            "mechanism": self._say(draft.mechanism),
            "evidence": [self._say(ref.id) for ref in draft.evidence],
            "gain_percent": [rounded(100 * draft.prediction.low), rounded(100 * draft.prediction.high)],
            "probability": rounded(draft.prediction.probability),
        }

    def _with(self, also: tuple[str, Value] | None) -> Document:
        """The other part of a declared bundle; nothing of it for a single change."""
        return {} if also is None else {"with": {"knob": self._say(also[0]), "to_value": self._value(*also)}}

    def _value(self, path: str, value: Value) -> str:
        written = self._written.get(path, {}).get(_typed(value))
        if written is not None:
            return written
        return value_text(value) if self._redactor.is_shown(value) else "a private value"


def value_text(value: Value) -> str:
    """How a value is written in a prompt and in an answer."""
    match value:
        case None:
            return "unset"
        case bool():
            return "true" if value else "false"
        case _:
            return str(value)


def figure_value(value: float) -> float:
    """Six significant figures, whole numbers whole: a citation of it is within the tolerance of admission."""
    whole = float(value).is_integer() and abs(value) < 1e15
    return int(value) if whole else float(f"{value:.6g}")


def rounded(value: float) -> float:
    return float(f"{value:.4g}")


def _typed(value: Value) -> tuple[type, Value]:
    """True is not 1, and 6 is not 6.0."""
    return type(value), value


def _written_values(knob: KnobPart, redactor: Redactor) -> Mapping[tuple[type, Value], str]:
    """Each value with the text that stands for it. A private one is called by its place in the list."""
    values = dict.fromkeys(map(_typed, (*knob.values, knob.current, *knob.tried)))
    return {
        typed: value_text(typed[1]) if redactor.is_shown(typed[1]) else f"option-{place}"
        for place, typed in enumerate(values, start=1)
    }


def _some(values: Sequence[Value]) -> tuple[Value, ...]:
    """All values, or evenly spread ones with both ends: the optimizer does the fine steps."""
    if len(values) <= SHOWN_VALUES:
        return tuple(values)
    last = len(values) - 1
    return tuple(values[round(i * last / (SHOWN_VALUES - 1))] for i in range(SHOWN_VALUES))


def _settings_of(path: str) -> tuple[str, ...]:
    """The settings that a knob writes: one of `both` writes prefill and decode."""
    role, _, rest = path.partition(".")
    return (f"prefill.{rest}", f"decode.{rest}") if role == "both" else (path,)
