"""Logs: structlog to JSON lines in a file, redaction first in the chain. The console is for people and is elsewhere."""

from __future__ import annotations

import logging
import logging.handlers
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import structlog

MAX_BYTES, KEEP = 16 << 20, 5
_SECRET_NAMES = ("key", "token", "secret", "password", "authorization")
REDACTED = "[redacted]"


def configure_logs(folder: Path) -> None:
    """Everything that any library logs goes through one chain into `logs/tuneloop.jsonl`."""
    folder.mkdir(parents=True, exist_ok=True)
    shared: list[Any] = [
        redact,
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        # Locals of a traceback would hold keys and request text.
        structlog.processors.ExceptionRenderer(structlog.tracebacks.ExceptionDictTransformer(show_locals=False)),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.handlers.RotatingFileHandler(
        folder / "tuneloop.jsonl", maxBytes=MAX_BYTES, backupCount=KEEP, encoding="utf-8"
    )
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
        old.close()
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    logging.getLogger("paramiko").setLevel(logging.WARNING)  # its INFO names users and addresses


def redact(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Values under names that hold secrets never reach a sink."""
    for name in event:
        if any(part in name.lower() for part in _SECRET_NAMES):
            event[name] = REDACTED
    return event
