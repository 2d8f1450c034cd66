"""Two changes on one card: refused by rule, unless a limit stopped one part or both were tried alone."""

from __future__ import annotations

import pytest

from experiments.admission import Code, Rejection, admit
from experiments.card import Card, EvidenceRef, novelty_key
from experiments.escape import bundle_refusal
from experiments.serving_config import Change, Kind, Role, ServingConfig, Value
from experiments.study import Study, fold
from tests.factories import a_draft, a_night, an_opening

EVIDENCE = (EvidenceRef(id="x", value=1.0),)


def change(name: str, from_value: Value, to_value: Value, also: Change | None = None) -> Change:
    return Change(role=Role.DECODE, kind=Kind.FLAG, name=name, from_value=from_value, to_value=to_value, also=also)


MORE_REQUESTS = change("max-running-requests", 128, 160)
MORE_MEMORY = change("mem-fraction-static", 0.85, 0.95)


def bundle(first: Change, second: Change) -> Change:
    return first.model_copy(update={"also": second})


def fresh() -> Study:
    return fold([an_opening()])


def late() -> Study:
    """After a night in which more memory was infeasible and more requests broke the limit, each on the incumbent."""
    return fold(a_night(settle_held=True))


def test_a_bundle_of_untried_parts_is_refused() -> None:
    """The tempting two-knob change: admission names what to try alone first."""
    draft = a_draft("decode.flag.max-running-requests", 128, 160, evidence=EVIDENCE)
    tempting = draft.model_copy(update={"change": bundle(MORE_REQUESTS, MORE_MEMORY)})

    result = admit(tempting, fresh(), {"x": 1.0})

    assert isinstance(result, Rejection)
    assert result.codes == (Code.BUNDLE_REFUSED,)
    assert "alone first" in result.messages[0]


def test_a_part_that_a_limit_stopped_may_be_paired() -> None:
    """What ran out of memory alone may run with what gives room, and the card is one card with both parts in it."""
    study = late()
    less_cache = change("max-running-requests", 128, 64)
    draft = a_draft("decode.flag.mem-fraction-static", 0.85, 0.95, evidence=EVIDENCE)
    paired = draft.model_copy(update={"change": bundle(MORE_MEMORY, less_cache)})

    card = admit(paired, study, {"x": 1.0})

    assert isinstance(card, Card)
    assert card.config.settings["decode.flag.mem-fraction-static"] == 0.95
    assert card.config.settings["decode.flag.max-running-requests"] == 64
    assert card.name.endswith("mem-fraction-static-0-95-max-running-requests-64")


@pytest.mark.parametrize(
    ("also", "why"),
    [
        (change("mem-fraction-static", 0.85, 0.8), "both parts set"),
        (bundle(change("max-running-requests", 128, 64), MORE_REQUESTS), "never more"),
    ],
)
def test_a_bundle_has_two_different_parts(also: Change, why: str) -> None:
    """One knob twice, or three parts, is no bundle."""
    assert why in (bundle_refusal(late(), bundle(MORE_MEMORY, also)) or "")


def test_the_order_of_the_parts_makes_no_other_idea() -> None:
    """A bundle said the other way round is the same card."""
    there, back = bundle(MORE_REQUESTS, MORE_MEMORY), bundle(MORE_MEMORY, MORE_REQUESTS)

    assert novelty_key(there) == novelty_key(back)
    assert novelty_key(there) != novelty_key(MORE_REQUESTS)


def test_a_single_change_is_stored_as_before_there_were_bundles() -> None:
    """The digests of older cards hold."""
    assert "also" not in MORE_MEMORY.model_dump(mode="json")
    assert Change.model_validate_json(MORE_MEMORY.model_dump_json()) == MORE_MEMORY
    both = bundle(MORE_MEMORY, MORE_REQUESTS)
    assert Change.model_validate_json(both.model_dump_json()) == both


def test_a_bundle_applies_both_parts() -> None:
    """The configuration under test differs in exactly the two."""
    before = ServingConfig(settings={"decode.flag.max-running-requests": 128, "decode.flag.mem-fraction-static": 0.85})

    assert before.changed(bundle(MORE_REQUESTS, MORE_MEMORY)).settings == {
        "decode.flag.max-running-requests": 160,
        "decode.flag.mem-fraction-static": 0.95,
    }
