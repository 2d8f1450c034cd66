"""Renewed parts: made once under a mark, never older than it, and nobody waits for a maker who gave up."""

from __future__ import annotations

import asyncio

import pytest

from agent.dashboard import parts as parts_module
from agent.dashboard.parts import MOST, Parts


def test_a_hundred_who_ask_at_once_wait_for_one() -> None:
    """The first makes it; the others are given what it made."""

    async def work() -> None:
        parts = Parts()
        asking = [asyncio.ensure_future(parts.find_or_claim("/", "m")) for _ in range(100)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert [a.done() for a in asking].count(True) == 1
        await asyncio.to_thread(parts.keep, "/", "m", "body")
        parts.done("/", "m")
        assert [await a for a in asking] == [None, *["body"] * 99]

    asyncio.run(work())


def test_another_mark_is_another_part() -> None:
    """What was made before a change is not given after it, at whatever address."""

    async def work() -> None:
        parts = Parts()
        assert await parts.find_or_claim("/", "m1") is None
        parts.keep("/", "m1", "old")
        parts.done("/", "m1")
        assert await parts.find_or_claim("/", "m1") == "old"
        assert await parts.find_or_claim("/", "m2") is None
        assert await parts.find_or_claim("/x", "m1") is None

    asyncio.run(work())


def test_who_gave_up_keeps_nobody_waiting() -> None:
    """A page that ended in an error was not kept: whoever waited makes it anew."""

    async def work() -> None:
        parts = Parts()
        await parts.find_or_claim("/", "m")
        waiting = asyncio.ensure_future(parts.find_or_claim("/", "m"))
        await asyncio.sleep(0)
        parts.done("/", "m")
        assert await waiting is None

    asyncio.run(work())


def test_patience_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A maker that hangs is waited for a little, and then not."""
    monkeypatch.setattr(parts_module, "PATIENCE_S", 0.01)

    async def work() -> None:
        parts = Parts()
        await parts.find_or_claim("/", "m")
        assert await parts.find_or_claim("/", "m") is None

    asyncio.run(work())


def test_parts_do_not_fill_the_memory() -> None:
    """Addresses come from outside."""

    async def work() -> None:
        parts = Parts()
        for number in range(10 * MOST):
            parts.keep(f"/{number}", "m", "body")
        found = [await parts.find_or_claim(f"/{n}", "m") for n in range(10 * MOST)]
        assert 0 < len([body for body in found if body is not None]) <= MOST

    asyncio.run(work())
