"""Admission: each code with its sentence, and what may pass."""

from __future__ import annotations

import math

import pytest

from experiments.admission import Code, Rejection, admit
from experiments.card import Card, CardDraft, EvidenceRef
from experiments.knob import Cost, Knob
from experiments.serving_config import Kind, Role
from tests.experiments.scripted import START, Script, the_goal
from tests.factories import a_draft

FIGURES = {"prefill.lone_tail_share": 1 / 3, "decode.waiting.mean": 0.0, "prefill.waiting.mean": 11.2, "gone": None}
CAP = "prefill.flag.prefill-max-requests"


def outcome(draft: CardDraft, script: Script | None = None, invalid: tuple[str, ...] = ()) -> Card | Rejection:
    return admit(draft, (script or Script()).study, FIGURES, invalid)


def refused(draft: CardDraft, script: Script | None = None, invalid: tuple[str, ...] = ()) -> dict[Code, str]:
    found = outcome(draft, script, invalid)
    assert isinstance(found, Rejection), found
    return dict(zip(found.codes, found.messages, strict=True))


def test_admitted_card_is_bound_to_its_parent() -> None:
    """Number, parent, scenario, cost and numerics come from the study, never from the draft."""
    script = Script()
    card = outcome(a_draft(CAP, 1, 2), script)
    assert isinstance(card, Card)
    assert (card.number, card.cost, card.alters_numerics) == (1, Cost.RESTART, False)
    assert card.parent == script.study.incumbent
    assert card.parent_fingerprint == script.study.incumbent.fingerprint()
    assert card.scenario_digest == script.study.opened.scenario_digest


def test_knob_that_changes_numerics_says_so_on_the_card() -> None:
    """Compact is known to alter the model's outputs."""
    card = outcome(a_draft("decode.env.SGLANG_ENABLE_COMPACT", "0", "1"))
    assert isinstance(card, Card)
    assert card.alters_numerics


def test_unknown_knob() -> None:
    """The knobs that exist are named, so that a proposer can choose one."""
    message = refused(a_draft("decode.flag.made-up", 1, 2))[Code.UNKNOWN_KNOB]
    assert message.startswith("decode.flag.made-up is not a knob; knobs: prefill.flag.prefill-max-requests, ")


def test_out_of_bounds() -> None:
    """A value that is not in the list."""
    assert refused(a_draft(CAP, 1, 9)) == {Code.OUT_OF_BOUNDS: f"{CAP}: 9 is not in 1, 2, 3, 4"}


def test_out_of_range() -> None:
    """A value outside the range of a numeric knob."""
    found = refused(a_draft("client.client.concurrency", 128, 1024))
    assert list(found) == [Code.OUT_OF_BOUNDS]
    assert "1024 is not in the range" in found[Code.OUT_OF_BOUNDS]


def test_number_is_not_its_text() -> None:
    """ "1" is not 1: a configuration is compared by value and kind."""
    assert Code.OUT_OF_BOUNDS in refused(a_draft(CAP, 1, "2"))


def test_wrong_from() -> None:
    """A draft that believes in another incumbent is refused for that, and for that alone."""
    assert refused(a_draft(CAP, 3, 2)) == {Code.WRONG_FROM: f"{CAP} is 1 now, the draft says 3"}


def test_no_change() -> None:
    """Setting what is set."""
    assert refused(a_draft(CAP, 1, 1)) == {Code.NO_CHANGE: f"{CAP} is 1 already"}


def test_default_of_an_absent_setting_is_no_change() -> None:
    """Writing the default where nothing is written changes nothing that runs."""
    knob = Knob(role=Role.DECODE, flag="num-reserved-decode-tokens", values=(256, 512), cost=Cost.RESTART, default=512)
    script = Script(goal=the_goal(knobs=(knob,)))
    path = "decode.flag.num-reserved-decode-tokens"
    assert refused(a_draft(path, None, 512), script) == {Code.NO_CHANGE: f"{path} is None already"}


def test_knob_of_both_roles_is_one_change() -> None:
    """It writes its value to prefill and to decode, from whatever each had."""
    knob = Knob(role=Role.BOTH, flag="mem-fraction-static", values=(0.8, 0.9), cost=Cost.RESTART)
    script = Script(goal=the_goal(knobs=(knob,)))
    card = outcome(a_draft("both.flag.mem-fraction-static", None, 0.9), script)
    assert isinstance(card, Card)
    assert card.config.of(Role.PREFILL, Kind.FLAG)["mem-fraction-static"] == 0.9
    assert card.config.of(Role.DECODE, Kind.FLAG)["mem-fraction-static"] == 0.9


def test_refuted_on_this_configuration() -> None:
    """A negative stands while its parent does; the server's words stay in the ledger."""
    script = Script().baseline().card().run(START * 0.8).close()
    message = refused(a_draft(CAP, 1, 2), script)[Code.REFUTED]
    assert message == f"{CAP} = 2 was refuted on this configuration (slower)"


def test_other_prose_is_the_same_idea() -> None:
    """The key is the change, not the mechanism that is told for it."""
    script = Script().baseline().card().run(START * 0.8).close()
    again = a_draft(CAP, 1, 2, mechanism="An entirely new story.")
    assert Code.REFUTED in refused(again, script)


def test_negative_may_be_tried_on_another_configuration() -> None:
    """Its conditions changed: cap 2 was negative earlier and +32 % later."""
    script = Script().baseline().card(a_draft("decode.flag.max-running-requests", 128, 160))
    script.run(START * 0.8).close().card().run(START * 1.3).close()
    script.run(START * 1.3, START, START * 1.3, START).close()
    found = outcome(a_draft("decode.flag.max-running-requests", 128, 160), script)
    assert isinstance(found, Card) or Code.REFUTED not in found.codes


def test_duplicate_of_an_open_card() -> None:
    """The same change of the same configuration stands on one card at a time."""
    script = Script().baseline().card()
    assert refused(a_draft(CAP, 1, 2), script) == {
        Code.DUPLICATE: f"card {script.open_card.name} is the same change of the same configuration"
    }


def test_a_card_that_was_lost_to_faults_may_be_asked_once_more() -> None:
    """A fault says nothing about a configuration; lost twice is no accident."""
    script = Script().baseline().card().fail(times=2).close()
    assert isinstance(outcome(a_draft(CAP, 1, 2), script), Card)
    script.card(number=2).fail(times=2).close()
    assert Code.DUPLICATE in refused(a_draft(CAP, 1, 2), script)


def test_no_evidence() -> None:
    """A card without a figure is an opinion."""
    assert list(refused(a_draft(CAP, 1, 2, evidence=()))) == [Code.NO_EVIDENCE]


@pytest.mark.parametrize("name", ["made.up", "gone"])
def test_unknown_or_unobserved_evidence(name: str) -> None:
    """A figure that does not exist, or that nobody observed, supports nothing."""
    draft = a_draft(CAP, 1, 2, evidence=(EvidenceRef(id=name, value=0.5),))
    assert refused(draft) == {Code.EVIDENCE_UNKNOWN: f"there is no observed figure {name}"}


@pytest.mark.parametrize(
    ("name", "value", "passes"),
    [
        ("prefill.lone_tail_share", 0.333, True),
        ("prefill.lone_tail_share", 0.34, False),
        ("prefill.waiting.mean", 11.2, True),
        ("prefill.waiting.mean", 11.25, True),
        ("prefill.waiting.mean", 11.3, False),
        ("decode.waiting.mean", 0.0, True),
        ("decode.waiting.mean", 0.01, False),
        ("prefill.waiting.mean", -11.2, False),
        ("prefill.waiting.mean", math.nan, False),
        ("prefill.waiting.mean", math.inf, False),
    ],
)
def test_evidence_matches_to_three_figures(name: str, value: float, passes: bool) -> None:
    """Rounded as people round is right; a wrong value, a wrong sign or no number is not."""
    found = outcome(a_draft(CAP, 1, 2, evidence=(EvidenceRef(id=name, value=value),)))
    assert isinstance(found, Card) is passes
    if isinstance(found, Rejection):
        assert found.codes == (Code.EVIDENCE_MISMATCH,)


def test_missing_dependency() -> None:
    """AL of 5.5 needs its draft tokens first."""
    knob = Knob(
        role=Role.DECODE,
        flag="speculative-num-steps",
        values=(3, 5),
        cost=Cost.RESTART,
        depends_on=("decode.flag.speculative-algorithm",),
    )
    script = Script(goal=the_goal(knobs=(knob,)))
    path = "decode.flag.speculative-num-steps"
    assert refused(a_draft(path, None, 5), script) == {
        Code.DEPENDENCY_MISSING: f"{path} needs decode.flag.speculative-algorithm to be set first"
    }


def test_invalid_configuration() -> None:
    """A rule of the engine that would be broken is passed on as it is."""
    rule = "chunked-prefill-size / dp-size = 4096 is not a multiple of page-size 128"
    assert refused(a_draft(CAP, 1, 2), invalid=(rule,)) == {Code.INVALID_CONFIGURATION: rule}


def test_every_objection_is_told_at_once() -> None:
    """A proposer learns all of it in one answer."""
    draft = a_draft(CAP, 4, 9, evidence=(EvidenceRef(id="made.up", value=1),))
    assert list(refused(draft, invalid=("too large",))) == [
        Code.OUT_OF_BOUNDS,
        Code.WRONG_FROM,
        Code.EVIDENCE_UNKNOWN,
        Code.INVALID_CONFIGURATION,
    ]
