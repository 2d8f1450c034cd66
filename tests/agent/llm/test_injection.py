"""Text of a server, a client or a stranger has no way into the prompt.

Text of a person is quoted there; whoever obeys it reaches nothing but a card that is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from agent.llm import ScriptedModel
from agent.planner.llm_proposer import LlmProposer
from agent.planner.packet import EvidencePacket
from agent.planner.port import ProposerUnavailable
from agent.planner.prompt import RenderedPrompt, render
from executor.engines.evidence import Observed, fold_evidence
from executor.engines.loads import parse_loads
from executor.engines.server_log import parse_server_log
from experiments.admission import admit
from experiments.card import Card
from experiments.evidence import ServingEvidence
from experiments.ledger import LedgerEntry, TrialFinished, TrialsClassified
from experiments.serving_config import diff
from experiments.study import Study, fold
from experiments.trial import TrialRecord
from tests.agent.llm.injections import LANGUAGES, ORDERS, ObedientModel, corpus, find_orders
from tests.agent.llm.packets import a_packet, a_study, packet_of
from tests.factories import a_draft, a_night

CORPUS = corpus()
CHARS = 48_000

BATCH = (
    "[2026-12-01 20:00:{:02d} DP0 TP0] Prefill batch, #new-seq: 1, #new-token: 8192, #cached-token: 0, "
    "token usage: 0.10, #running-req: 0, #queue-req: 7, {}"
)


def text_of(prompt: RenderedPrompt) -> str:
    return "\n".join(message.content for message in prompt.messages)


def test_corpus_is_large_and_the_model_obeys_all_of_it() -> None:
    """Two hundred strings and more, in over three languages; shown as they are, every one is obeyed."""
    assert len(set(CORPUS)) == len(CORPUS) >= 200
    assert [text for text in CORPUS if not find_orders(text)] == []


# --- text of machines -------------------------------------------------------------------------------------


def evidence_of_log(text: str) -> ServingEvidence:
    """Servers that write the string into every place of their log, loads and metrics that we read."""
    lines = [
        text,
        f"[2026-12-01 20:00:00 DP0 TP0] {text}",
        f"[2026-12-01 20:00:00 DP0 TP0] server_args=ServerArgs(model_path={text!r}, dp_size=1)",
        *(BATCH.format(second, f"{text}: {text}, #pending-token: {text}") for second in range(20)),
        *(BATCH.format(second, "#bootstrap-req: 2") for second in range(20, 40)),
    ]
    rank = {"dp_rank": 0, "num_waiting_reqs": 3, text: text, "status": text}
    sample = parse_loads({"loads": [rank], "version": text, text: text}, at=1.0)
    side = Observed(
        records=tuple(parse_server_log("\n".join(lines).split("\n"))), samples=() if sample is None else (sample,)
    )
    return fold_evidence(side, side, simulated=True)


@cache
def the_night() -> tuple[LedgerEntry, ...]:
    return tuple(a_night(settle_held=True))


def with_evidence(evidence: ServingEvidence) -> Study:
    entries = [_with_record(entry, {"evidence": evidence}) for entry in the_night()]
    return fold(entries)


def _with_record(entry: LedgerEntry, update: dict[str, object]) -> LedgerEntry:
    if not isinstance(entry, TrialFinished) or entry.record.evidence is None:
        return entry
    return entry.model_copy(update={"record": entry.record.model_copy(update=update)})


def test_server_text_leaves_the_prompt_as_it_is() -> None:
    """Log lines, arguments, extra fields of batches and loads: the prompt is the same to the byte."""
    clean = text_of(render(packet_of(with_evidence(evidence_of_log("nothing to see"))), CHARS))
    assert "prefill.waiting.mean" in clean
    for text in CORPUS:
        told = text_of(render(packet_of(with_evidence(evidence_of_log(text))), CHARS))
        if "\r" in text:  # a carriage return in a batch line hides that line, so a count differs
            assert find_orders(told) == []
        else:
            assert clean == told


def stained(record: TrialRecord, text: str) -> TrialRecord:
    """A record with the string in every text that a machine wrote."""
    measurement = record.measurement
    if measurement is not None:
        checks = tuple(check.model_copy(update={"detail": text}) for check in measurement.checks)
        measurement = measurement.model_copy(update={"checks": checks, "client_version": text})
    failure = record.failure
    if failure is not None:
        failure = failure.model_copy(update={"detail": text, "repair": text})
    faults = tuple(fault.model_copy(update={"detail": text, "repair": text}) for fault in record.faults)
    artifacts = tuple(artifact.model_copy(update={"name": text[:50]}) for artifact in record.artifacts)
    return record.model_copy(
        update={
            "measurement": measurement,
            "failure": failure,
            "faults": faults,
            "artifacts": artifacts,
            "server_version": text,
        }
    )


def stained_entry(entry: LedgerEntry, text: str) -> LedgerEntry:
    if isinstance(entry, TrialFinished):
        return entry.model_copy(update={"record": stained(entry.record, text)})
    if isinstance(entry, TrialsClassified) or entry.kind == "card_closed":
        classification = entry.classification.model_copy(update={"explanation": text})
        return entry.model_copy(update={"classification": classification})
    texts = {"detail", "reason", "by", "why", "note"} & set(type(entry).model_fields)
    free = {name: text for name in texts if type(getattr(entry, name)) is str}
    return entry.model_copy(update=free)


def test_ledger_text_leaves_the_prompt_as_it_is() -> None:
    """Details of faults and checks, versions, explanations, reasons of operators, names of artifacts: none is told."""
    night = the_night()
    clean = text_of(render(packet_of(fold(night)), CHARS))
    for text in CORPUS:
        study = fold([stained_entry(entry, text) for entry in night])
        assert clean == text_of(render(packet_of(study), CHARS))


def test_reason_of_a_refutation_does_not_come_back_as_an_objection() -> None:
    """The sentence of a refutation can quote a server's log; of the objection only our own words are told."""
    night = the_night()
    for text in CORPUS:
        study = fold([stained_entry(entry, text) for entry in night])
        packet = packet_of(study)
        draft = a_draft("decode.flag.mem-fraction-static", 0.85, 0.95)
        refused = admit(draft, study, packet.figures)
        assert not isinstance(refused, Card)
        objections = tuple(f"{c}: {m}" for c, m in zip(refused.codes, refused.messages, strict=True))
        told = text_of(render(packet.model_copy(update={"objections": objections}), CHARS))
        assert "was refuted on this configuration" in told
        assert find_orders(told) == []


# --- text of people ---------------------------------------------------------------------------------------


def _steering(packet: EvidencePacket, text: str) -> EvidencePacket:
    return packet.model_copy(update={"steering": (text,)})


def _suggestion(packet: EvidencePacket, text: str) -> EvidencePacket:
    draft = a_draft("prefill.flag.prefill-max-requests", 1, 2, mechanism=text[:600])
    return packet.model_copy(update={"suggestions": (draft,)})


def _objection(packet: EvidencePacket, text: str) -> EvidencePacket:
    return packet.model_copy(update={"objections": (f"out_of_bounds: {text}",)})


def _scenario(packet: EvidencePacket, text: str) -> EvidencePacket:
    return packet.model_copy(update={"objective": packet.objective.model_copy(update={"scenario": text})})


def _mechanism(packet: EvidencePacket, text: str) -> EvidencePacket:
    knob = packet.knobs[0].model_copy(update={"mechanism": text})
    return packet.model_copy(update={"knobs": (knob, *packet.knobs[1:])})


def _sentence(packet: EvidencePacket, text: str) -> EvidencePacket:
    wall = packet.walls[0].model_copy(update={"sentence": text})
    return packet.model_copy(update={"walls": (wall, *packet.walls[1:])})


def _setting(packet: EvidencePacket, text: str) -> EvidencePacket:
    return packet.model_copy(update={"incumbent": {**packet.incumbent, "decode.flag.model-path": text}})


def _knob_value(packet: EvidencePacket, text: str) -> EvidencePacket:
    knob = packet.knobs[4].model_copy(update={"values": ("default", text)})
    return packet.model_copy(update={"knobs": (*packet.knobs[:4], knob, *packet.knobs[5:])})


SOURCES = (_steering, _suggestion, _objection, _scenario, _mechanism, _sentence, _setting, _knob_value)


@pytest.mark.parametrize("source", SOURCES)
def test_obeying_has_no_effect(source: Callable[[EvidencePacket, str], EvidencePacket]) -> None:
    """Whatever an obedient model does: no card outside the space, none with another cost, none by its own verdict."""
    study, effects = a_study(), 0
    before = study.position, len(study.cards), study.incumbent, study.stopped
    model = ObedientModel()
    for text in CORPUS:
        packet = source(a_packet(), text)
        try:
            proposal = LlmProposer(ScriptedModel(model)).propose(packet)
        except ProposerUnavailable:
            continue
        for draft in proposal.drafts:
            card = admit(draft, study, packet.figures)
            effects += isinstance(card, Card) and not _is_harmless(card)
    assert effects == 0
    assert before == (study.position, len(study.cards), study.incumbent, study.stopped)
    if source in (_setting, _knob_value):
        assert model.obeyed == 0  # a setting's text is not told at all
    else:
        assert model.obeyed > len(CORPUS) / 2  # so that the zero above means something


def _is_harmless(card: Card) -> bool:
    """The one change that the model proposes when it is left in peace."""
    (change,) = diff(card.parent, card.config)
    return str(change) == "prefill prefill-max-requests 1 → 2"


def test_quoted_text_is_one_short_line() -> None:
    """Each text of a person is one JSON string, without controls, below its cap; all of them stay below 16 KB."""
    quiet = len(text_of(render(a_packet(), CHARS)))
    for start in range(0, len(CORPUS), 10):
        texts = tuple(CORPUS[start : start + 10])
        told = text_of(render(a_packet(steering=texts * 5, objections=texts * 5), CHARS))
        assert len(told) < quiet + 16_000
        assert [line for line in told.split("\n") if not line.isprintable()] == []


def test_proposal_of_an_obedient_model_is_only_a_draft() -> None:
    """Its note may say what it likes: verdict, mode and approval are no fields of an answer."""
    text = LANGUAGES[2].format(ORDERS[-1])
    packet = a_packet(steering=(text,))
    model = ObedientModel()
    proposal = LlmProposer(ScriptedModel(model)).propose(packet)
    assert model.obeyed == 1
    accounts = {"tokens", "cost", "model", "rung", "seconds"}
    assert {"drafts", "note", *accounts} == set(type(proposal).model_fields)
    assert [draft.change.to_value for draft in proposal.drafts] == [4096]
