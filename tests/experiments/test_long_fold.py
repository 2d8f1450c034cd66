"""A long study: to read it costs as much per entry as a short one."""

from __future__ import annotations

import time

import pytest

from experiments.study import fold
from tests.factories import a_long_study


def seconds_to_fold(experiments: int) -> float:
    """The best of three: other processes take the processor's caches away."""
    entries = a_long_study(experiments)
    took = []
    for _ in range(3):
        began = time.process_time()
        fold(entries)
        took.append(time.process_time() - began)
    return min(took)


@pytest.mark.slow
def test_the_fold_takes_linear_time() -> None:
    """Eight times the experiments take less than twenty times as long; a square would take sixty-four."""
    seconds_to_fold(50)
    small = seconds_to_fold(250)
    large = seconds_to_fold(2000)

    assert large < 20 * small
