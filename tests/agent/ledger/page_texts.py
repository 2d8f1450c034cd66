"""The files of a ledger as texts, without the plots: drawing takes longer than everything else together."""

from __future__ import annotations

from collections.abc import Sequence

from agent.ledger.build import Places, ledger_texts
from agent.ledger.history import gather
from agent.ledger.redaction import Redactor
from agent.ledger.tradeoff_section import tradeoff_sets
from agent.ledger.words import Words
from experiments.ledger import LedgerEntry

_BLANK = {"progress.svg": "<svg/>", "trade-off.svg": "<svg/>"}


def texts_of(entries: Sequence[LedgerEntry]) -> dict[str, str]:
    """Every file by its path in the ledger folder."""
    redact = Redactor()
    history = gather(entries, redact)
    places = Places(artifacts="../../artifacts", kept=None)
    return dict(ledger_texts(history, tradeoff_sets(history), _BLANK, places, Words(), redact))
