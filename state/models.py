"""The tables. `entries` and `stage_journal` are the record; all other tables of a study are projections of it.

Projections are written in the transaction of the entry that they show and can be built anew from the entries.
Invariants that the schema itself guards: one entry per position, one formal send per trial, and no metric in a row
that is not valid.
"""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Dialect,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
)


class UtcDateTime(TypeDecorator[datetime]):
    """An aware datetime, stored as UTC. SQLite would give it back naive."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a stored time needs a time zone")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

STUDIES = Table(
    "studies",
    METADATA,
    Column("id", String, primary_key=True),
    Column("name", String, nullable=False),
    Column("pool", String, nullable=False),
    Column("scenario_digest", String, nullable=False),
    Column("simulated", Boolean, nullable=False),
    Column("objective_metric", String, nullable=False),
    Column("objective_window", String, nullable=False),
    Column("screening_window", String, nullable=False),
    Column("formal_requests", Integer, nullable=False),
    Column("opened_at", UtcDateTime, nullable=False),
    Column("last_at", UtcDateTime, nullable=False),
    Column("position", Integer, nullable=False),  # of the last entry; the guard of every append
    Column("head_hash", String(64), nullable=False),
    Column("trials", Integer, nullable=False),
    Column("kept", Integer, nullable=False),
    Column("incumbent_card", String(64)),
    Column("held_trial_id", String),
    Column("stop_reason", String),
    Column("stop_detail", Text),
)

ENTRIES = Table(
    "entries",
    METADATA,
    Column("study_id", ForeignKey("studies.id"), primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("kind", String, nullable=False),
    Column("at", UtcDateTime, nullable=False),
    Column("payload", Text, nullable=False),  # canonical JSON: the text that was hashed
    Column("prev_hash", String(64), nullable=False),
    Column("hash", String(64), nullable=False),
    CheckConstraint("position > 0", name="position_counts_from_one"),
    Index(None, "study_id", "kind", "position"),
)

CARDS = Table(
    "cards",
    METADATA,
    Column("study_id", ForeignKey("studies.id"), primary_key=True),
    Column("digest", String(64), primary_key=True),
    Column("number", Integer, nullable=False),
    Column("name", String, nullable=False),
    Column("source", String, nullable=False),
    Column("cost", String, nullable=False),
    Column("wall", String, nullable=False),
    Column("parent_fingerprint", String, nullable=False),
    Column("role", String, nullable=False),
    Column("knob", String, nullable=False),
    Column("from_value", Text, nullable=False),  # JSON scalars, so that 1, 1.0 and "1" stay apart
    Column("to_value", Text, nullable=False),
    Column("position", Integer, nullable=False),
    Column("admitted_at", UtcDateTime, nullable=False),
    Column("closed_at", UtcDateTime),
    Column("route", String),
    Column("reason", String),
    Column("explanation", Text),
    Column("kept", Boolean, nullable=False),
    UniqueConstraint("study_id", "number"),
)

_METRICS = (
    "n_requests",
    "duration_s",
    "output_tok_s_per_card",
    "request_per_s",
    "ttft_mean_s",
    "tpot_mean_ms",
    "e2e_mean_s",
    "accept_length",
)
_NO_METRIC = " AND ".join(f"{name} IS NULL" for name in _METRICS)

TRIALS = Table(
    "trials",
    METADATA,
    Column("trial_id", String, primary_key=True),
    Column("study_id", ForeignKey("studies.id"), nullable=False),
    Column("position", Integer, nullable=False),  # of its trial_started
    Column("finish_position", Integer),  # of its trial_finished, where the whole record is
    Column("tier", String, nullable=False),
    Column("card_digest", String(64)),
    Column("config_fingerprint", String, nullable=False),
    Column("why", Text, nullable=False),
    Column("requests", Integer, nullable=False),
    Column("concurrency", Integer, nullable=False),
    Column("rate", Float),
    Column("cache", String, nullable=False),
    Column("started_at", UtcDateTime, nullable=False),
    Column("finished_at", UtcDateTime),
    Column("state", String, nullable=False),
    Column("detail", Text),  # of the failure, or what to check while it is held
    Column("sent", String),
    Column("simulated", Boolean, nullable=False),
    Column("route", String),
    Column("reason", String),
    Column("explanation", Text),
    Column("window_kind", String, nullable=False),  # the one that the figures below are of
    Column("meets_floor", Boolean),
    Column("n_failed", Integer),
    Column("n_requests", Integer),
    Column("duration_s", Float),
    Column("output_tok_s_per_card", Float),
    Column("request_per_s", Float),
    Column("ttft_mean_s", Float),
    Column("tpot_mean_ms", Float),
    Column("e2e_mean_s", Float),
    Column("accept_length", Float),
    CheckConstraint(
        "state IN ('running', 'held', 'valid', 'invalid')",
        name="state_known",
    ),
    CheckConstraint(f"state = 'valid' OR ({_NO_METRIC})", name="metric_only_if_valid"),
    CheckConstraint("state <> 'valid' OR route IS NULL OR route <> 'orchestration_fault'", name="fault_not_valid"),
    UniqueConstraint("study_id", "position"),
)

KEPT_CONFIGURATIONS = Table(
    "kept_configurations",
    METADATA,
    Column("study_id", ForeignKey("studies.id"), primary_key=True),
    Column("name", String, primary_key=True),
    Column("position", Integer, nullable=False),
    Column("kept_at", UtcDateTime, nullable=False),
    Column("card_digest", String(64), nullable=False),
    Column("fingerprint", String, nullable=False),
    Column("config", Text, nullable=False),  # canonical JSON of the whole configuration
    Column("trial_ids", Text, nullable=False),  # JSON list
    Column("quality", String, nullable=False),
    UniqueConstraint("study_id", "card_digest"),
    ForeignKeyConstraint(["study_id", "card_digest"], ["cards.study_id", "cards.digest"]),
)

ARTIFACTS = Table(
    "artifacts",
    METADATA,
    Column("trial_id", ForeignKey("trials.trial_id"), primary_key=True),
    Column("name", String, primary_key=True),
    Column("sha256", String(64), nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("removed_at", UtcDateTime),  # by retention; the hash stays
)

STAGE_JOURNAL = Table(
    "stage_journal",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("trial_id", String, nullable=False),
    Column("stage", String, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("began", UtcDateTime, nullable=False),
    Column("ended", UtcDateTime),
    Column("outcome", String),
    Column("payload", Text, nullable=False),
    UniqueConstraint("trial_id", "stage", "attempt"),
    CheckConstraint("(ended IS NULL) = (outcome IS NULL)", name="ends_with_an_outcome"),
)

# The second guard against a second send; the first is the claim on the host.
FORMAL_SENDS = Table(
    "formal_sends",
    METADATA,
    Column("trial_id", String, primary_key=True),
    Column("job_id", String, nullable=False),
    Column("host", String, nullable=False),
    Column("claimed_at", UtcDateTime, nullable=False),
)

DRIVERS = Table(
    "drivers",
    METADATA,
    Column("study_id", String, primary_key=True),  # no foreign key: a study is driven before its first entry
    Column("owner", String, nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("acquired_at", UtcDateTime, nullable=False),
    Column("expires_at", UtcDateTime, nullable=False),
    CheckConstraint("epoch > 0", name="epoch_counts_from_one"),
)

METRIC_COLUMNS = _METRICS
