from __future__ import annotations

import pytest

from executor.dataset import BuildRefused, compile_dataset, parse_event, parse_manifest, spec_of
from experiments.errors import InputError
from experiments.scenario import Scenario


def _scenario(**cache: object) -> Scenario:
    return Scenario.model_validate(
        {
            "model": "some-model",
            "deployment": "pd",
            "input": {"body_tokens": 131072, "encoded_tokens": 131076, "task": "ordinary"},
            "output_tokens": 1024,
            "cache": cache or {"state": "zero"},
            "load": {
                "client": "aisbench",
                "requests": 640,
                "concurrency": 90,
                "rate": 6.0,
                "warmup": 8,
                "seed": 42,
            },
        }
    )


WARM = {"state": "warm", "per_request_min": 0.90, "seed_requests": 16, "check_requests": 16}


def test_a_warm_scenario_gets_the_prefix_that_the_field_ended_with() -> None:
    """118784 of 131076 tokens: whole pages with six to spare."""
    spec = spec_of(_scenario(**WARM), "/models/a")
    assert (spec.prefix_tokens, spec.seed_requests, spec.check_requests) == (118784, 16, 16)


def test_the_first_design_of_the_field_is_refused_when_the_data_is_planned() -> None:
    """117968 tokens are 90.0000 % of the input and 89.9387 % of it in whole pages."""
    with pytest.raises(InputError, match=r"89\.9387%, 90\.0000% needed"):
        spec_of(_scenario(**WARM, prefix_tokens=117970), "/models/a")


def test_a_zero_cache_scenario_shares_nothing() -> None:
    """No groups, no seeds, no checks; warm-up rows are apart from the measured ones."""
    spec = spec_of(_scenario(), "/models/a")
    assert (spec.prefix_tokens, spec.seed_requests, spec.check_requests, spec.warm_up_requests) == (None, 0, 0, 8)


def test_the_folder_names_the_specification_and_the_tokenizer() -> None:
    """The same promise is found again; another tokenizer or seed is another data set."""
    spec = spec_of(_scenario(), "/models/a")
    other = spec.model_copy(update={"seed": 7})
    elsewhere = spec.model_copy(update={"tokenizer": "/models/b"})
    folders = {compile_dataset(each, "/data").folder for each in (spec, spec.model_copy(), elsewhere, other)}
    assert len(folders) == 3


@pytest.mark.parametrize("line", ["", "noise", "[1]", '{"event": "else"}', '{"event": "progress", "done": "x"}'])
def test_output_that_is_no_event_is_passed_over(line: str) -> None:
    """A host prints warnings of its own among ours."""
    assert parse_event(line) is None


def test_a_manifest_that_is_not_ours_is_refused() -> None:
    """A damaged manifest names its field; it is not read as an empty data set."""
    found = parse_manifest(b'{"spec": {}, "parts": {}, "template": true, "shared_tokens": 0, "cacheable_tokens": 0}')
    assert isinstance(found, BuildRefused)
    assert "spec" in found.message
