"""The jobs around one job, as a store reads them for its page: bounded, whatever number of children it has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from windlass.model.job import Job
from windlass.model.reports.story import LinkGroup, Relative


class LinkStore(Protocol):
    """What is read about the jobs around a job. None of it contains an input or an output."""

    async def link_groups(self, job: UUID, *, most: int) -> list[LinkGroup]:
        """The jobs that this one knows by name, counted by name, type and state; of `most` links at most."""
        ...

    async def relatives(self, jobs: Sequence[UUID], *, page: int) -> list[Relative]:
        """The jobs that each of these knows by name, and those that wait for it now; of each at most a page."""
        ...

    async def find_brief(self, jobs: Sequence[UUID]) -> dict[UUID, Job]:
        """These jobs, in whichever table they are, without input (`{}`) and output."""
        ...
