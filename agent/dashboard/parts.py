"""Parts of pages that were renewed for one watcher and serve the others: a hundred open pages ask for the same at once.

A part holds nothing of a session: no form, no name, no notice. It is as old as its mark, which changes with whatever
a page could show. Whoever asks while it is being made waits for it, in the event loop and not in a thread.
"""

from __future__ import annotations

import asyncio

MOST = 64
PATIENCE_S = 2.0  # for whoever makes it; then it is made once more


class AlreadyMade(Exception):
    """Somebody was given this part under this mark."""

    def __init__(self, body: str) -> None:
        super().__init__("made before")
        self.body = body


class Parts:
    """By address. `keep` may be called in any thread, the rest belongs to the event loop."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[str, str]] = {}
        self._making: dict[tuple[str, str], asyncio.Event] = {}

    async def find_or_claim(self, address: str, mark: str) -> str | None:
        """The part; None: the caller makes it, and says so with `done` whatever became of it."""
        made = self._find(address, mark)
        if made is not None:
            return made
        making = self._making.get((address, mark))
        if making is None:
            self._making[address, mark] = asyncio.Event()
            return None
        try:
            await asyncio.wait_for(making.wait(), PATIENCE_S)
        except TimeoutError:
            return None
        return self._find(address, mark)

    def keep(self, address: str, mark: str, body: str) -> None:
        if len(self._made) >= MOST:
            self._made = {}
        self._made[address] = mark, body

    def done(self, address: str, mark: str) -> None:
        making = self._making.pop((address, mark), None)
        if making is not None:
            making.set()

    def _find(self, address: str, mark: str) -> str | None:
        made = self._made.get(address)
        return made[1] if made is not None and made[0] == mark else None
