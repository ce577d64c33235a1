"""The parameters in queries that several routes have.

Names of queues, keys, tenants and schedules may hold any letter, a slash too: they are in the query or in the body, and
not in the path.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from windlass.methods.reads import LARGEST_PAGE
from windlass.web.schemas.base import NAME, SPAN

Name = Annotated[str, Query(min_length=1, max_length=200, pattern=NAME)]
MaybeName = Annotated[str | None, Query(min_length=1, max_length=200, pattern=NAME)]
Key = Annotated[str, Query(min_length=1, max_length=250, description="of a limit or rate, such as domain:example.org")]
Since = Annotated[str, Query(min_length=2, max_length=32, pattern=SPAN, description="how far back: 90s, 10m, 1h, 7d")]
Step = Annotated[str, Query(min_length=2, max_length=32, pattern=SPAN, description="the length of a row: 10s, 1m, 1h")]
Count = Annotated[int, Query(ge=1, le=LARGEST_PAGE)]
