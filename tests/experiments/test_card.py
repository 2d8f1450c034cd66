"""The card: its digest is its identity, its name is for people, its key is the idea."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from experiments.card import Card, Prediction, novelty_key
from experiments.knob import Cost
from experiments.serving_config import Value, diff
from tests.factories import a_card, a_config, a_draft

CAP = "prefill.flag.prefill-max-requests"


def test_same_card_has_the_same_digest() -> None:
    """Two builds of one card agree, in another process as well: no identity of objects is in it."""
    assert a_card().digest == a_card().digest
    assert len(a_card().digest) == 64


def test_every_field_is_in_the_digest() -> None:
    """Another value, number, mechanism, parent or cost is another card."""
    cards = [
        a_card(),
        a_card(a_draft(CAP, 1, 3)),
        a_card(number=2),
        a_card(a_draft(CAP, 1, 2, mechanism="another")),
        a_card(parent=a_config(decode__flag__max_running_requests=160)),
        a_card(cost=Cost.HOT),
        a_card(alters_numerics=True),
    ]
    assert len({card.digest for card in cards}) == len(cards)


def test_stored_card_has_the_digest_it_had() -> None:
    """JSON and back changes nothing."""
    card = a_card()
    assert Card.model_validate_json(card.model_dump_json()).digest == card.digest


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (2, "c01-prefill-max-requests-2"),
        (None, "c01-prefill-max-requests-unset"),
        (0.85, "c01-prefill-max-requests-0-85"),
    ],
)
def test_name(value: Value, name: str) -> None:
    """Number, knob and value, fit for a file name."""
    assert a_card(a_draft(CAP, 1, value)).name == name


@given(text=st.text(min_size=1, max_size=60))
def test_name_is_a_safe_file_name(text: str) -> None:
    """Whatever the value says, it is no path and no option."""
    name = a_card(a_draft(CAP, 1, text)).name
    assert name.startswith("c01-prefill-max-requests")
    assert not set(name) & set('/\\.:*?"<>| \n\0')
    assert len(name) < 120


def test_configuration_is_the_parent_with_one_change() -> None:
    """The card's configuration differs by its change and by nothing else."""
    card = a_card()
    assert diff(card.parent, card.config) == (card.draft.change,)


def test_novelty_key_ignores_prose_and_origin() -> None:
    """Path and value are the idea; where it came from and how it is told are not."""
    one = a_draft(CAP, 1, 2)
    other = a_draft(CAP, 4, 2, mechanism="another story")
    assert novelty_key(one.change) == novelty_key(other.change)
    assert novelty_key(one.change) != novelty_key(a_draft(CAP, 1, 3).change)


@pytest.mark.parametrize("probability", [-0.1, 1.1])
def test_probability_is_a_probability(probability: float) -> None:
    """A prediction outside 0 to 1 is refused."""
    with pytest.raises(ValidationError):
        Prediction(low=0, high=0.1, probability=probability)


def test_card_cannot_be_changed() -> None:
    """Frozen: an outcome is another entry, never an edit."""
    with pytest.raises(ValidationError):
        a_card().number = 7  # type: ignore[misc]
