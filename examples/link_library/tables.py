"""The library's own tables, beside those of Windlass in the same database."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

DRIVERS = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+asyncpg"}
metadata = sa.MetaData()

imports = sa.Table(
    "library_imports",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("source_type", sa.Text, nullable=False),
    sa.Column("file", sa.LargeBinary, nullable=False),
)
links = sa.Table(
    "library_links",
    metadata,
    sa.Column("url", sa.Text, primary_key=True),
    *(sa.Column(name, sa.Text) for name in ("title", "description", "icon", "language", "type", "leads_to")),
)
placements = sa.Table(
    "library_placements",
    metadata,
    sa.Column("id", sa.String(64), primary_key=True),  # of user, folder and url, which may be too long for an index
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("folder", sa.Text, nullable=False),
    sa.Column("url", sa.Text, sa.ForeignKey("library_links.url"), nullable=False),
    sa.Column("title", sa.Text, nullable=False),
    sa.Index("library_links_of_users", "user_id", "url", "id"),
)
candidates = sa.Table(
    "library_block_candidates",
    metadata,
    sa.Column("url", sa.Text, primary_key=True),
    sa.Column("domain", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
)


def make_engine(url: str) -> AsyncEngine:
    """Make SQLAlchemy's engine for the database that Windlass uses."""
    scheme, _, place = url.partition("://")
    patience = {"timeout": 30} if scheme == "sqlite" else {}  # seconds for the one writer of a file
    return create_async_engine(f"{DRIVERS[scheme]}://{place}", connect_args=patience)
