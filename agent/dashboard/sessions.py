"""Who is logged in. Sessions live in memory: a dashboard that starts again asks for the token again."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
from dataclasses import dataclass, field

from executor.clock import Clock

LIFE_S = 12 * 3600.0
MOST = 100  # the oldest has to log in again


@dataclass(kw_only=True)
class Session:
    """`csrf` goes into every form; `name` is what its user last signed with; `notices` are shown once."""

    csrf: str
    until: float
    name: str = ""
    notices: list[str] = field(default_factory=list)

    def take_notices(self) -> list[str]:
        taken, self.notices = self.notices, []
        return taken


class Sessions:
    """Safe to share between threads. Only digests of session ids are kept, so that a look-up tells nothing by time."""

    def __init__(self, token: str, clock: Clock) -> None:
        self._token, self._clock = _digest(token), clock
        self._open: dict[bytes, Session] = {}
        self._lock = threading.Lock()

    def log_in(self, token: str) -> str | None:
        """The id of a new session; None for a wrong token. Compared in constant time."""
        if not hmac.compare_digest(_digest(token), self._token):
            return None
        session_id = secrets.token_urlsafe(32)
        session = Session(csrf=secrets.token_urlsafe(32), until=self._clock.monotonic() + LIFE_S)
        with self._lock:
            while len(self._open) >= MOST:
                del self._open[next(iter(self._open))]
            self._open[_digest(session_id)] = session
        return session_id

    def find(self, session_id: str | None) -> Session | None:
        if not session_id:
            return None
        key = _digest(session_id)
        with self._lock:
            session = self._open.get(key)
            if session is not None and session.until <= self._clock.monotonic():
                del self._open[key]
                return None
        return session

    def log_out(self, session_id: str | None) -> None:
        if session_id:
            with self._lock:
                self._open.pop(_digest(session_id), None)


def is_signed(session: Session, csrf: str) -> bool:
    """Whether a form came from a page of this session."""
    return hmac.compare_digest(session.csrf.encode(), csrf.encode("utf-8", errors="replace"))


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", errors="replace")).digest()
