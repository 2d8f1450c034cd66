"""Expert loads of the simulated model: seeded, recorded as samples, and answering to a placement."""

from __future__ import annotations

import subprocess
import sys

import pytest

from executor.engines.on_host.fit_expert_layout import fit
from executor.simulated.calibrations import calibration_for
from executor.simulated.model.experts import (
    EXPERTS,
    LAYERS,
    expert_loads,
    misfit,
    recorded_counts,
    refusal,
    trivial_placement,
)
from executor.simulated.model.mechanisms import ServerMechanisms, prefill_factors

FLASH = "DeepSeek-V4-Flash-W8A8"


def test_a_server_starts_without_numpy() -> None:
    """A pool starts hundreds of servers in a test run; each import is paid at every start."""
    program = "import sys, executor.simulated.server; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_each_model_and_side_has_loads_of_its_own() -> None:
    """The same names give the same loads; every layer's shares add up to one."""
    loads = expert_loads(FLASH, "prefill")
    assert loads == expert_loads(FLASH, "prefill")
    assert loads != expert_loads(FLASH, "decode")
    assert [sum(layer) for layer in loads] == pytest.approx([1.0] * LAYERS)


def test_a_fitted_placement_is_nearly_even_and_another_sides_is_not() -> None:
    """Fitted on a sample it leaves a few per cent of the unevenness; loaded on the other side it helps little."""
    placement, before, after = fit(recorded_counts(FLASH, "prefill", 100_000), 16, 16)
    assert before < 0.8 < 0.97 < after
    assert misfit(trivial_placement(), FLASH, "prefill", 16) == 1.0
    assert misfit(placement, FLASH, "prefill", 16) < 0.1
    assert misfit(placement, FLASH, "decode", 16) > 0.5


def test_more_recorded_tokens_make_a_better_layout() -> None:
    """A recording is a sample: of few tokens, it is a poor one."""
    few, _, _ = fit(recorded_counts(FLASH, "prefill", 50), 16, 16)
    many, _, _ = fit(recorded_counts(FLASH, "prefill", 50_000), 16, 16)
    assert misfit(few, FLASH, "prefill", 16) > misfit(many, FLASH, "prefill", 16)


def test_the_cost_of_a_layout_is_in_proportion_to_what_it_leaves_uneven() -> None:
    """Even is the calibrated layout that fits, the engine's own placement the one that does not."""
    mechanisms = calibration_for(f"/models/{FLASH}").mechanisms
    factors = [prefill_factors(mechanisms, ServerMechanisms(misfit=share))[0] for share in (0.0, 0.5, 1.0)]
    assert factors[0] == mechanisms.prefill_imbalance["fitted"]
    assert factors[2] == mechanisms.prefill_imbalance["original"]
    assert factors[1] == pytest.approx((factors[0] + factors[2]) / 2)


@pytest.mark.parametrize(
    ("placement", "slots", "ranks", "said"),
    [
        (trivial_placement(), EXPERTS, 16, None),
        (trivial_placement(), EXPERTS + 16, 16, "physical_to_logical_map.shape[-1] == num_physical_experts"),
        (trivial_placement()[1:], EXPERTS, 16, "has not 8 layers"),
        (trivial_placement(), EXPERTS, 7, "for 7 ranks"),
        ([[0] * EXPERTS] * LAYERS, EXPERTS, 16, "an expert has no physical slot"),
        ({"a": 1}, EXPERTS, 16, "has not 8 layers"),
    ],
)
def test_a_placement_that_cannot_be_loaded_is_refused(
    placement: object, slots: int, ranks: int, said: str | None
) -> None:
    """In words like the engine's own."""
    found = refusal(placement, slots, ranks)
    assert (found is None) if said is None else (found is not None and said in found)
