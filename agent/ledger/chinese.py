"""The ledger's sentences in Chinese, by their English. A test holds this table complete."""

from __future__ import annotations

CHINESE: dict[str, str] = {}
