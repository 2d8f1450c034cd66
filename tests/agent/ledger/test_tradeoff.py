"""The trade-off table of the ledger is the one that `tuneloop choose` answers from."""

from __future__ import annotations

import pytest

from agent.ledger.history import gather
from agent.ledger.tradeoff_section import tradeoff_sets
from experiments.tradeoff import option_set
from tests.factories import a_night


def test_a_broken_constraint_keeps_a_configuration_out_of_the_set() -> None:
    """The fastest card of the night breaks the TPOT limit: it is shown and is not in the set."""
    _, screened = tradeoff_sets(gather(a_night()))
    (broken,) = [option for option in screened.options if option.violated]
    assert broken.name == "c03-max-running-requests-160"
    assert broken not in screened.front


@pytest.mark.parametrize("requests", [320, 640])
def test_a_set_holds_runs_of_one_n_only(requests: int) -> None:
    """No mean is taken over runs of different N."""
    study = gather(a_night()).study
    found = option_set(study, requests)
    assert found.options
    assert {study.trials[t].started.load.requests for o in found.options for t in o.trial_ids} == {requests}


def test_the_columns_are_those_of_the_goal() -> None:
    """Objective, constrained and reported figures, each once; counts are no column."""
    formal, _ = tradeoff_sets(gather(a_night()))
    assert formal.metrics == ("output_tok_s_per_card", "tpot_mean", "ttft_mean", "ttft_p90", "e2e_mean")
