"""The linker's own tables: projects, the entries of their data sets, and a task for each entry."""

from __future__ import annotations

from enum import StrEnum

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

DRIVERS = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+asyncpg"}
metadata = sa.MetaData()


class Status(StrEnum):
    """How far a task is."""

    PENDING = "pending"
    QUEUED = "QUEUED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


projects = sa.Table(
    "linker_projects",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
)
entries = sa.Table(
    "linker_entries",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("project_id", sa.ForeignKey("linker_projects.id"), nullable=False, index=True),
    *(sa.Column(name, sa.Text, nullable=False) for name in ("name", "born", "died", "description")),
)
tasks = sa.Table(
    "linker_tasks",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("project_id", sa.ForeignKey("linker_projects.id"), nullable=False, index=True),
    sa.Column("entry_id", sa.ForeignKey("linker_entries.id"), nullable=False, unique=True),
    sa.Column("status", sa.Text, nullable=False, default=Status.PENDING),
    sa.Column("job_id", sa.String(36)),  # its newest job
    sa.Column("entity", sa.Text),  # such as Q42; of the best candidate, if it is good enough
    sa.Column("score", sa.Float),  # of the best candidate, 0 to 100
    sa.Column("candidates", sa.Text),  # JSON, best first
    sa.Column("error", sa.Text),
    sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.current_timestamp()),
    sa.Index("linker_tasks_by_status", "status", "updated_at"),
)


def make_engine(url: str) -> AsyncEngine:
    """Make SQLAlchemy's engine for the database that Windlass uses."""
    scheme, _, place = url.partition("://")
    patience = {"timeout": 30} if scheme == "sqlite" else {}  # seconds for the one writer of a file
    return create_async_engine(f"{DRIVERS[scheme]}://{place}", connect_args=patience)
