"""alembic's entry: runs the revisions on the connection, and in the transaction, that `state.schema` opened."""

from __future__ import annotations

from typing import Any, Literal

from alembic import context
from sqlalchemy import TypeDecorator

from state.models import METADATA


def _render(kind: str, item: Any, _: Any) -> str | Literal[False]:
    """A revision must not import today's models: our types are written as what they are in the database."""
    return "sa.DateTime(timezone=True)" if kind == "type" and isinstance(item, TypeDecorator) else False


connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=METADATA,
    render_as_batch=connection.dialect.name == "sqlite",
    compare_type=True,
    render_item=_render,
)
with context.begin_transaction():
    context.run_migrations()
