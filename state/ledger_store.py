"""The ledger in a database: guarded appends, one hash chain per study, projections in the same transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, insert, select
from sqlalchemy.exc import IntegrityError

from experiments.errors import InvalidTransition, LedgerConflict
from experiments.ledger import LedgerEntry, StudyOpened
from state.chain import GENESIS, Link, link, read_entries, verify_chain
from state.drivers import check_epoch
from state.engine import Store
from state.models import ENTRIES, STUDIES
from state.projection import Place, forget, opened_row, project, seal

_LINK_COLUMNS = [ENTRIES.c[name] for name in ("study_id", "position", "kind", "at", "payload", "prev_hash", "hash")]


class _Head(NamedTuple):
    position: int
    hash: str


class SqlLedger:
    """`epoch`: write only while this process drives the study. None: the position alone guards (an operator's word)."""

    def __init__(self, store: Store, epoch: int | None = None) -> None:
        self._store, self._epoch = store, epoch

    def entries(self, study_id: str, after: int = 0) -> Sequence[LedgerEntry]:
        return read_entries(self._links(study_id, after))

    def entry(self, study_id: str, position: int) -> LedgerEntry | None:
        """One entry, without reading the others."""
        query = _query(study_id, position - 1).limit(1)
        with self._store.reading() as connection:
            row = connection.execute(query).mappings().one_or_none()
        found = _link(row) if row is not None else None
        return found.entry() if found is not None and found.position == position else None

    def position(self, study_id: str) -> int:
        """The position of the last entry; 0 if there is no such study."""
        with self._store.reading() as connection:
            return _head(connection, study_id, lock=False).position

    def append(self, study_id: str, entries: Sequence[LedgerEntry], *, after: int) -> int:
        """See `experiments.ports.Ledger`. Raises DriverRefused as well if the epoch is stale."""
        try:
            with self._store.writing() as connection:
                if self._epoch is not None:
                    check_epoch(connection, study_id, self._epoch)
                head = _head(connection, study_id)
                if head.position != after:
                    raise LedgerConflict(study_id, after, head.position)
                return _append(connection, study_id, head, entries)
        except IntegrityError as error:
            raise self._why(study_id, after, error) from error

    def verify(self, study_id: str) -> int:
        """Check the whole chain of a study and return its length. Raises LedgerDamaged naming the first bad row."""
        with self._store.reading() as connection:
            head = _head(connection, study_id, lock=False)
            rows = connection.execute(_query(study_id, 0)).mappings()
            return verify_chain(study_id, (_link(row) for row in rows), head.position, head.hash)

    def rebuild(self, study_id: str) -> None:
        """Build the projected rows of a study anew from its entries."""
        with self._store.writing() as connection:
            rows = connection.execute(_query(study_id, 0)).mappings().all()
            forget(connection, study_id)
            for one in map(_link, rows):
                project(Place(connection, study_id, one.position), one.entry())

    def _links(self, study_id: str, after: int) -> list[Link]:
        with self._store.reading() as connection:
            return [_link(row) for row in connection.execute(_query(study_id, after)).mappings()]

    def _why(self, study_id: str, after: int, error: IntegrityError) -> Exception:
        """A constraint stopped the append: either someone was faster, or the entries contradict what is stored."""
        actual = self.position(study_id)
        if actual != after:
            return LedgerConflict(study_id, after, actual)
        reason = " ".join(str(error.orig).split())[:200]
        return InvalidTransition(f"study {study_id}: the entries contradict what is stored: {reason}")


def _append(connection: Connection, study_id: str, head: _Head, entries: Sequence[LedgerEntry]) -> int:
    if not entries:
        return head.position
    check_opening(study_id, head.position, entries)
    links = list(link(study_id, head.position, head.hash, entries))
    for one, entry in zip(links, entries, strict=True):
        if isinstance(entry, StudyOpened):
            connection.execute(insert(STUDIES).values(**opened_row(entry)))
        project(Place(connection, study_id, one.position), entry)
    connection.execute(insert(ENTRIES), [vars(one) for one in links])
    last = links[-1]
    seal(Place(connection, study_id, last.position), last.hash, last.at)
    return last.position


def check_opening(study_id: str, position: int, entries: Sequence[LedgerEntry]) -> None:
    """The first entry, and only the first, opens the study; it names the study that it is appended to."""
    for offset, entry in enumerate(entries, start=position):
        opens = isinstance(entry, StudyOpened)
        if opens != (offset == 0):
            what = "begins with study_opened" if offset == 0 else "is opened once"
            raise InvalidTransition(f"study {study_id}: a ledger {what}, entry {offset + 1} is {entry.kind}")
        if isinstance(entry, StudyOpened) and entry.study_id != study_id:
            raise InvalidTransition(f"study {study_id}: its first entry opens {entry.study_id}")


def _head(connection: Connection, study_id: str, *, lock: bool = True) -> _Head:
    query = select(STUDIES.c.position, STUDIES.c.head_hash).where(STUDIES.c.id == study_id)
    row = connection.execute(query.with_for_update() if lock else query).one_or_none()
    return _Head(row[0], row[1]) if row is not None else _Head(0, GENESIS)


def _query(study_id: str, after: int) -> Any:
    return (
        select(*_LINK_COLUMNS)
        .where(ENTRIES.c.study_id == study_id, ENTRIES.c.position > after)
        .order_by(ENTRIES.c.position)
    )


def _link(row: Any) -> Link:
    return Link(**row)
