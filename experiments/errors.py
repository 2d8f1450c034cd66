"""The exception tree. Constructors take the facts and compose the message that an operator reads at 3 a.m.

TuningError
├── InputError           a file that a person wrote is wrong; carries file, line, column
├── InvalidTransition    an entry that the lifecycle table forbids
├── LedgerConflict       someone appended since we read
├── CardRejected         a draft that admission refuses, as an exception for callers that cannot go on
├── StoreError           the record cannot be read or written now; `state.errors` says how
├── HostError
│   ├── HostUnreachable  nothing was learned about the host
│   ├── LeaseRefused     another owner holds the host, or our epoch is stale
│   └── PortTaken        a stranger listens where our server should
├── StageFailed          a stage ended with a known fault; carries stage, reason, evidence
└── OutcomeUnknown       sent, and its end cannot be learned: stops new work on the pool
"""

from __future__ import annotations


class TuningError(Exception):
    """Root of everything this project raises on purpose."""


class InputError(TuningError):
    """A file that a person wrote is wrong. `str()` is the one line the CLI prints before exit code 2.

    `line` and `column` count from 1; 0 means that the place is not known (the file as a whole).
    """

    def __init__(self, file: str, line: int, column: int, message: str) -> None:
        self.file, self.line, self.column, self.message = file, line, column, message
        where = f"{file}:{line}:{column}" if line else file
        super().__init__(f"{where}: {message}")


class InvalidTransition(TuningError):
    """The lifecycle table forbids this entry here."""


class LedgerConflict(TuningError):
    """Someone appended to the study since it was read."""

    def __init__(self, study_id: str, expected: int, actual: int) -> None:
        self.study_id, self.expected, self.actual = study_id, expected, actual
        super().__init__(
            f"study {study_id}: ledger is at position {actual}, this writer read it at {expected}; read again"
        )


class StoreError(TuningError):
    """The record cannot be read or written now, or not by this process. It is about no host and no trial."""


class HostError(TuningError):
    """Something about a host, named first in the message."""

    def __init__(self, host: str, message: str) -> None:
        self.host = host
        super().__init__(f"host {host}: {message}")


class HostUnreachable(HostError):
    """The question was not answered. Says nothing about any job on the host."""


class LeaseRefused(HostError):
    """Another owner holds the host, the lease ran out, or our epoch is stale."""


class PortTaken(HostError):
    """A process that is not ours listens on a port that we need. It is never touched."""
