"""The first schema.

Revision ID: 0001
Revises:
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_NO_METRIC = " AND ".join(
    f"{name} IS NULL"
    for name in (
        "n_requests",
        "duration_s",
        "output_tok_s_per_card",
        "request_per_s",
        "ttft_mean_s",
        "tpot_mean_ms",
        "e2e_mean_s",
        "accept_length",
    )
)


def upgrade() -> None:
    op.create_table(
        "drivers",
        sa.Column("study_id", sa.String(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("acquired_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("epoch > 0", name=op.f("ck_drivers_epoch_counts_from_one")),
        sa.PrimaryKeyConstraint("study_id", name=op.f("pk_drivers")),
    )
    op.create_table(
        "formal_sends",
        sa.Column("trial_id", sa.String(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("claimed_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("trial_id", name=op.f("pk_formal_sends")),
    )
    op.create_table(
        "stage_journal",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("trial_id", sa.String(), nullable=False),
        sa.Column("stage", sa.String(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("began", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended", sa.DateTime(timezone=True), nullable=True),
        sa.Column("outcome", sa.String(), nullable=True),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.CheckConstraint("(ended IS NULL) = (outcome IS NULL)", name=op.f("ck_stage_journal_ends_with_an_outcome")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_stage_journal")),
        sa.UniqueConstraint("trial_id", "stage", "attempt", name=op.f("uq_stage_journal_trial_id_stage_attempt")),
    )
    op.create_table(
        "studies",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("pool", sa.String(), nullable=False),
        sa.Column("scenario_digest", sa.String(), nullable=False),
        sa.Column("simulated", sa.Boolean(), nullable=False),
        sa.Column("objective_metric", sa.String(), nullable=False),
        sa.Column("objective_window", sa.String(), nullable=False),
        sa.Column("screening_window", sa.String(), nullable=False),
        sa.Column("formal_requests", sa.Integer(), nullable=False),
        sa.Column("opened_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("head_hash", sa.String(length=64), nullable=False),
        sa.Column("trials", sa.Integer(), nullable=False),
        sa.Column("kept", sa.Integer(), nullable=False),
        sa.Column("incumbent_card", sa.String(length=64), nullable=True),
        sa.Column("held_trial_id", sa.String(), nullable=True),
        sa.Column("stop_reason", sa.String(), nullable=True),
        sa.Column("stop_detail", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_studies")),
    )
    op.create_table(
        "cards",
        sa.Column("study_id", sa.String(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("cost", sa.String(), nullable=False),
        sa.Column("wall", sa.String(), nullable=False),
        sa.Column("parent_fingerprint", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("knob", sa.String(), nullable=False),
        sa.Column("from_value", sa.Text(), nullable=False),
        sa.Column("to_value", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("admitted_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("closed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("route", sa.String(), nullable=True),
        sa.Column("reason", sa.String(), nullable=True),
        sa.Column("explanation", sa.Text(), nullable=True),
        sa.Column("kept", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["study_id"], ["studies.id"], name=op.f("fk_cards_study_id_studies")),
        sa.PrimaryKeyConstraint("study_id", "digest", name=op.f("pk_cards")),
        sa.UniqueConstraint("study_id", "number", name=op.f("uq_cards_study_id_number")),
    )
    op.create_table(
        "entries",
        sa.Column("study_id", sa.String(), nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.Column("prev_hash", sa.String(length=64), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.CheckConstraint("position > 0", name=op.f("ck_entries_position_counts_from_one")),
        sa.ForeignKeyConstraint(["study_id"], ["studies.id"], name=op.f("fk_entries_study_id_studies")),
        sa.PrimaryKeyConstraint("study_id", "position", name=op.f("pk_entries")),
    )
    op.create_index(
        op.f("ix_entries_study_id_kind_position"), "entries", ["study_id", "kind", "position"], unique=False
    )
    op.create_table(
        "trials",
        sa.Column("trial_id", sa.String(), nullable=False),
        sa.Column("study_id", sa.String(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("finish_position", sa.Integer(), nullable=True),
        sa.Column("tier", sa.String(), nullable=False),
        sa.Column("card_digest", sa.String(length=64), nullable=True),
        sa.Column("config_fingerprint", sa.String(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("requests", sa.Integer(), nullable=False),
        sa.Column("concurrency", sa.Integer(), nullable=False),
        sa.Column("rate", sa.Float(), nullable=True),
        sa.Column("cache", sa.String(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=True),
        sa.Column("sent", sa.String(), nullable=True),
        sa.Column("simulated", sa.Boolean(), nullable=False),
        sa.Column("route", sa.String(), nullable=True),
        sa.Column("reason", sa.String(), nullable=True),
        sa.Column("explanation", sa.Text(), nullable=True),
        sa.Column("window_kind", sa.String(), nullable=False),
        sa.Column("meets_floor", sa.Boolean(), nullable=True),
        sa.Column("n_failed", sa.Integer(), nullable=True),
        sa.Column("n_requests", sa.Integer(), nullable=True),
        sa.Column("duration_s", sa.Float(), nullable=True),
        sa.Column("output_tok_s_per_card", sa.Float(), nullable=True),
        sa.Column("request_per_s", sa.Float(), nullable=True),
        sa.Column("ttft_mean_s", sa.Float(), nullable=True),
        sa.Column("tpot_mean_ms", sa.Float(), nullable=True),
        sa.Column("e2e_mean_s", sa.Float(), nullable=True),
        sa.Column("accept_length", sa.Float(), nullable=True),
        sa.CheckConstraint(
            "state <> 'valid' OR route IS NULL OR route <> 'orchestration_fault'",
            name=op.f("ck_trials_fault_not_valid"),
        ),
        sa.CheckConstraint(f"state = 'valid' OR ({_NO_METRIC})", name=op.f("ck_trials_metric_only_if_valid")),
        sa.CheckConstraint("state IN ('running', 'held', 'valid', 'invalid')", name=op.f("ck_trials_state_known")),
        sa.ForeignKeyConstraint(["study_id"], ["studies.id"], name=op.f("fk_trials_study_id_studies")),
        sa.PrimaryKeyConstraint("trial_id", name=op.f("pk_trials")),
        sa.UniqueConstraint("study_id", "position", name=op.f("uq_trials_study_id_position")),
    )
    op.create_table(
        "artifacts",
        sa.Column("trial_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("removed_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["trial_id"], ["trials.trial_id"], name=op.f("fk_artifacts_trial_id_trials")),
        sa.PrimaryKeyConstraint("trial_id", "name", name=op.f("pk_artifacts")),
    )
    op.create_table(
        "kept_configurations",
        sa.Column("study_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("kept_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("card_digest", sa.String(length=64), nullable=False),
        sa.Column("fingerprint", sa.String(), nullable=False),
        sa.Column("config", sa.Text(), nullable=False),
        sa.Column("trial_ids", sa.Text(), nullable=False),
        sa.Column("quality", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["study_id", "card_digest"],
            ["cards.study_id", "cards.digest"],
            name=op.f("fk_kept_configurations_study_id_card_digest_cards"),
        ),
        sa.ForeignKeyConstraint(["study_id"], ["studies.id"], name=op.f("fk_kept_configurations_study_id_studies")),
        sa.PrimaryKeyConstraint("study_id", "name", name=op.f("pk_kept_configurations")),
        sa.UniqueConstraint("study_id", "card_digest", name=op.f("uq_kept_configurations_study_id_card_digest")),
    )


def downgrade() -> None:
    raise NotImplementedError("the schema moves forward only; restore the backup made before the upgrade")
