"""Prefill admission gives the batches that real schedulers gave."""

from __future__ import annotations

import importlib.util
from collections import deque
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from executor.simulated.model.admission import AdmissionRule, Pending, compose, is_gated_release

ORACLE = Path("/work/shared/lab/sim.py")


def batches(
    lengths: list[int], *, chunk: int | None = 8192, cap: int | None = None, budget: int = 16384, gate: bool = False
) -> list[list[int]]:
    """Token counts of every batch of one rank with an empty cache and endless memory."""
    rule = AdmissionRule(chunk=chunk, page=128, cap=cap, max_prefill_tokens=budget, gate=gate)
    queue = deque(Pending(index, length, 0) for index, length in enumerate(lengths))
    chunked: Pending | None = None
    found: list[list[int]] = []
    while queue or chunked is not None:
        pieces, chunked = compose(rule, chunked, queue, lambda _: True)
        found.append([piece.tokens for piece in pieces])
    return found


@pytest.mark.parametrize(
    ("length", "chunk", "cap", "count"),
    [
        (16388, 8192, 1, 960),
        (16388, 8192, 2, 645),
        (16388, 8192, 4, 645),
        (16388, 8192, None, 645),
        (16384, 8192, 2, 640),
        (3584, 8192, 1, 320),
        (3584, 8192, 2, 160),
        (3584, 8192, 3, 143),
        (3584, 8192, None, 140),
        (16388, 16384, 1, 640),
        (16388, 16384, 2, 323),
        (16388, 16512, 2, 320),
    ],
)
def test_320_requests_take_the_batches_of_a_real_scheduler(
    length: int, chunk: int, cap: int | None, count: int
) -> None:
    """Batch counts equal those measured on real PrefillAdder classes (reference/sglang.md §6.2)."""
    assert len(batches([length] * 320, chunk=chunk, cap=cap)) == count


@pytest.mark.parametrize(("requests", "one", "two"), [(160, 480, 323), (80, 240, 162), (40, 120, 81), (20, 60, 41)])
def test_counts_scale_per_rank(requests: int, one: int, two: int) -> None:
    """A rank with a share of the requests runs the share's own count."""
    assert (len(batches([16388] * requests, cap=1)), len(batches([16388] * requests, cap=2))) == (one, two)


def test_the_tail_shares_its_batch_with_the_next_request() -> None:
    """With cap 2 the four-token tail takes 8064 tokens of the next request along; with cap 1 it runs alone."""
    assert batches([16388] * 320, cap=1)[:4] == [[8192], [8192], [4], [8192]]
    assert batches([16388] * 320, cap=2)[:5] == [[8192], [8192], [4, 8064], [8192], [132, 7936]]


@pytest.mark.parametrize(
    ("budget", "count"), [(16384, 960), (16640, 960), (16896, 747), (24576, 646), (24704, 645), (32768, 645)]
)
def test_old_releases_gate_a_second_request_by_max_prefill_tokens(budget: int, count: int) -> None:
    """Up to 0.5.12.post1 cap 2 changes nothing until max-prefill-tokens is raised (reference/sglang.md §6.3)."""
    assert len(batches([16388] * 320, cap=2, budget=budget, gate=True)) == count
    assert len(batches([16388] * 320, cap=2, budget=budget)) == 645


@pytest.mark.parametrize(
    ("version", "gated"), [("0.5.8.post1", True), ("0.5.12.post1", True), ("0.5.13", False), ("0.5.23", False)]
)
def test_the_gate_ends_with_0_5_13(version: str, gated: bool) -> None:
    """Which release has the gate is read from the version."""
    assert is_gated_release(version) is gated


lengths = st.lists(st.integers(1, 40_000), min_size=1, max_size=40)
caps = st.one_of(st.none(), st.integers(1, 6))


@settings(deadline=None, max_examples=60)
@given(lengths, caps, st.sampled_from([128, 1024, 8192]))
def test_no_token_is_lost_and_no_batch_exceeds_its_limits(sizes: list[int], cap: int | None, chunk: int) -> None:
    """Tokens are conserved; a batch holds at most the cap of requests and the chunk of tokens."""
    found = batches(sizes, chunk=chunk, cap=cap)
    assert sum(map(sum, found)) == sum(sizes)
    assert all(1 <= len(batch) <= (cap or len(sizes)) and sum(batch) <= chunk for batch in found)


@pytest.mark.skipif(not ORACLE.is_file(), reason="the shared oracle is not on this machine")
@settings(deadline=None, max_examples=40)
@given(st.integers(1, 60), st.integers(1, 40_000), caps, st.sampled_from([8192, 16384, 20480]), st.booleans())
def test_batches_equal_an_independent_simulation(
    count: int, length: int, cap: int | None, budget: int, gate: bool
) -> None:
    """An independently written admission gives the same batches, with and without the old gate."""
    expected = _oracle().simulate(count, length, 8192, 128, cap, max_prefill=budget, gate=gate)
    assert batches([length] * count, cap=cap, budget=budget, gate=gate) == expected


def _oracle() -> Any:
    spec = importlib.util.spec_from_file_location("admission_oracle", ORACLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
