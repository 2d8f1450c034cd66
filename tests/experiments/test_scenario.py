"""The scenario: its identity, and what makes two results comparable."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from experiments.goal import parse_goal
from experiments.scenario import CacheState, Load, Scenario
from tests.experiments.goal_text import GOAL, changed


def scenario(old: str = "name", new: str = "name", text: str = GOAL) -> Scenario:
    return parse_goal(changed(old, new, text), "goal.yaml").scenario


BASE = scenario()

DIFFERENT = {
    "model": ("DeepSeek-V4-Flash-W8A8", "DeepSeek-V4-Flash-W4A8"),
    "input": ("body_tokens: 16384, encoded_tokens: 16388", "body_tokens: 131072, encoded_tokens: 131076"),
    "task": ("task: copy", "task: ordinary"),
    "output": ("output_tokens: 1024", "output_tokens: 512"),
    "cache": ("{state: zero}", "{state: warm, per_request_min: 0.9, seed_requests: 16}"),
    "seed": ("rate: 6.0}", "rate: 6.0, seed: 43}"),
    "warmup": ("rate: 6.0}", "rate: 6.0, warmup: 9}"),
    "requests": ("requests: 640", "requests: 641"),
}


@pytest.mark.parametrize(("old", "new"), DIFFERENT.values(), ids=DIFFERENT.keys())
def test_results_of_different_scenarios_are_not_comparable(old: str, new: str) -> None:
    """Model, lengths, task, cache, seed, warm-up and N each make another key and another identity."""
    other = scenario(old, new)
    assert other.comparable_key(other.load) != BASE.comparable_key(BASE.load)
    assert other.digest() != BASE.digest()


@pytest.mark.parametrize(("old", "new"), [("concurrency: 128", "concurrency: 90"), ("rate: 6.0", "rate: 3.0")])
def test_c_and_r_are_settings_and_not_part_of_the_key(old: str, new: str) -> None:
    """C128 and C90 of one scenario are comparable: the one change is in the configuration."""
    other = scenario(old, new)
    assert other.comparable_key(other.load) == BASE.comparable_key(BASE.load)


def test_tiers_are_not_comparable() -> None:
    """A screening of N320 and a confirmation of N640 differ in exactly one part of the key."""
    short = BASE.load.model_copy(update={"requests": 320})
    before, after = BASE.comparable_key(BASE.load), BASE.comparable_key(short)
    assert {name for name in before if before[name] != after[name]} == {"load.requests"}


def test_key_names_its_parts() -> None:
    """The key is flat, so that a refusal can name what differs."""
    key = BASE.comparable_key(BASE.load)
    assert key["scenario.input.encoded_tokens"] == 16388
    assert not [value for value in key.values() if isinstance(value, dict)]


def test_digest_is_stable() -> None:
    """Reading the same text twice gives the same identity, as does another order of its keys."""
    reordered = changed(
        "{client: aisbench, requests: 640, concurrency: 128, rate: 6.0}",
        "{rate: 6, concurrency: 128, requests: 640, client: aisbench}",
    )
    assert parse_goal(reordered, "goal.yaml").scenario.digest() == BASE.digest()


def test_page_rounded_prefix_of_the_field_record_reaches_its_share() -> None:
    """118784 of 131076 tokens is 90.6222 %, above 90 %."""
    text = changed("{state: zero}", "{state: warm, per_request_min: 0.9, seed_requests: 16, prefix_tokens: 118784}")
    found = scenario(*DIFFERENT["input"], text=text)
    assert found.cache.prefix_tokens is not None
    assert round(100 * found.cache.prefix_tokens / found.input.encoded_tokens, 4) == 90.6222


@pytest.mark.parametrize(
    "values",
    [
        {"state": "warm"},
        {"state": "warm", "per_request_min": 0.9},
        {"state": "warm", "per_request_min": 1.0, "seed_requests": 1},
        {"state": "zero", "check_requests": 16},
        {"state": "lukewarm"},
    ],
)
def test_cache_states_that_cannot_be_proved_are_refused(values: dict[str, object]) -> None:
    """A warm cache has a share below 1 and requests that fill it; a zero cache has neither."""
    with pytest.raises(ValidationError):
        CacheState.model_validate(values)


def test_load_is_frozen() -> None:
    """A load cannot be changed in place."""
    with pytest.raises(ValidationError, match="frozen"):
        Load.model_validate(BASE.load.model_dump()).requests = 1  # type: ignore[misc]
