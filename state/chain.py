"""The text of an entry and its place in the hash chain. Pure; the same for every database and in memory.

A hash covers the study, the position, the columns beside the text, the text, and the hash before it: an entry that is
edited, removed, swapped or moved to another study breaks the chain at its own row.
"""

from __future__ import annotations

import gc
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pydantic import ValidationError

from experiments.ledger import ENTRY, LedgerEntry
from state.errors import LedgerDamaged

GENESIS = "0" * 64


def canonical_json(document: object) -> str:
    """Sorted keys, no blanks, no NaN: one text for one document."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def plain(document: dict[str, object]) -> dict[str, object]:
    """The document as it comes back from its text. Raises as storing it would."""
    loaded: dict[str, object] = json.loads(canonical_json(document))
    return loaded


@dataclass(frozen=True, kw_only=True)
class Link:
    """One entry as it is stored."""

    study_id: str
    position: int
    kind: str
    at: datetime
    payload: str
    prev_hash: str
    hash: str

    def expected_hash(self) -> str:
        at = self.at.astimezone(UTC).isoformat()
        covered = [self.study_id, self.position, self.kind, at, self.payload, self.prev_hash]
        return hashlib.sha256(canonical_json(covered).encode()).hexdigest()

    def entry(self) -> LedgerEntry:
        try:
            return ENTRY.validate_json(self.payload)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            raise LedgerDamaged(
                f"study {self.study_id}: entry {self.position} ({self.kind}) cannot be read: {first['msg']};"
                " it is damaged, or a newer version of tuneloop wrote it"
            ) from None


def link(study_id: str, after: int, head_hash: str, entries: Iterable[LedgerEntry]) -> Iterator[Link]:
    """The entries as links behind the head of a chain."""
    for position, entry in enumerate(entries, start=after + 1):
        unsealed = Link(
            study_id=study_id,
            position=position,
            kind=entry.kind,
            at=entry.at,
            payload=canonical_json(ENTRY.dump_python(entry, mode="json")),
            prev_hash=head_hash,
            hash="",
        )
        head_hash = unsealed.expected_hash()
        yield Link(**{**vars(unsealed), "hash": head_hash})


def read_entries(links: Sequence[Link]) -> list[LedgerEntry]:
    """The entries of the links.

    The cycle collector rests meanwhile: it would walk all that was read so far again and again and find nothing,
    which made ten thousand experiments take five times as long.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        return [one.entry() for one in links]
    finally:
        if was_on:
            gc.enable()


def verify_chain(study_id: str, links: Iterable[Link], position: int, head_hash: str) -> int:
    """Check every link and the head that the study remembers; return the number of links.

    Raises LedgerDamaged naming the first row that is not what was appended.
    """
    count, before = 0, GENESIS
    for one in links:
        count += 1
        if one.position != count:
            raise LedgerDamaged(f"study {study_id}: entry {count} is missing, the next stored is {one.position}")
        if one.prev_hash != before or one.hash != one.expected_hash():
            raise LedgerDamaged(
                f"study {study_id}: entry {count} ({one.kind}) was changed after it was written;"
                " restore the database from a backup"
            )
        before = one.hash
    if (count, before) != (position, head_hash):
        raise LedgerDamaged(
            f"study {study_id}: the ledger ends at entry {count}, but {position} were appended;"
            " restore the database from a backup"
        )
    return count
