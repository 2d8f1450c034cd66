"""What the store refuses. Each message names the study, the row or the file, and what to do about it."""

from __future__ import annotations

from experiments.errors import StoreError


class StoreUnusable(StoreError):
    """The database did not answer as a database does: locked, full, gone, damaged. Nothing may be sent."""


class SchemaUnknown(StoreError):
    """The database was written by another version of this program, which this one does not know."""


class LedgerDamaged(StoreError):
    """A stored entry is not what was appended: the chain is broken, or it cannot be read."""


class DriverRefused(StoreError):
    """Another process drives the study, or this one did and was replaced."""
