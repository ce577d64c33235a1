"""Tenants share a queue by weight, work-conserving: stride scheduling, in the memory of each worker, pure.

Every job that a tenant gets moves its virtual time on by 1/weight; whose virtual time is lowest comes next. Each worker
does so by itself, so that nothing has to be written for it, and what holds for each worker holds for all of them.

A claim asks for quotas before it knows how many jobs each tenant has. A tenant that lately had fewer than its quota is
`light`: it is offered its share first and beside the others, whose quotas fill the room without it. So a light tenant
waits for nobody, and no place stays empty because of one.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from math import ceil

MOST_LIGHT = 200
"""Light tenants that are offered their share in one claim; where there are more, they take turns."""

Group = tuple[int, int, str]
"""Phase rank, urgency and queue: tenants share inside one."""


class Fairness:
    """The shares of one worker's claims."""

    def __init__(self) -> None:
        self._virtual: dict[tuple[str, str], float] = {}  # (queue, tenant) → what it got, by weight
        self._light: dict[Group, set[str]] = {}
        self._here: dict[Group, set[str]] = {}  # who had jobs at the last look
        self._turn = 0

    def quotas(
        self, group: Group, tenants: Sequence[str], room: int, weights: Mapping[str, float]
    ) -> list[tuple[str, int]]:
        """How many of `room` places each tenant may take now, in the order in which they are served."""
        self._arrive(group, tenants)
        if len(tenants) <= 1:
            return [(tenant, room) for tenant in tenants]
        known = self._light.setdefault(group, set())
        light = self._in_turn([tenant for tenant in tenants if tenant in known])
        heavy = [tenant for tenant in tenants if tenant not in known]
        if not heavy:  # nobody is known to have more than its share: whoever has may take it all
            light.sort(key=lambda tenant: self._virtual.get((group[2], tenant), 0.0))
            return [(tenant, room) for tenant in light]
        together = sum(weights.get(tenant, 1.0) for tenant in tenants)
        beside = [(tenant, max(1, ceil(room * weights.get(tenant, 1.0) / together))) for tenant in light]
        return beside + self._strides(group[2], heavy, room, weights)

    def _arrive(self, group: Group, tenants: Sequence[str]) -> None:
        """Who comes back begins with the last of those who stayed: time away is not saved up."""
        queue, before = group[2], self._here.get(group, set())
        self._here[group] = set(tenants)
        stayed = [self._virtual.get((queue, tenant), 0.0) for tenant in tenants if tenant in before]
        for tenant in tenants:
            if stayed and tenant not in before and (queue, tenant) in self._virtual:
                self._virtual[queue, tenant] = max(self._virtual[queue, tenant], min(stayed))

    def _in_turn(self, light: list[str]) -> list[str]:
        if len(light) <= MOST_LIGHT:
            return light
        self._turn = (self._turn + MOST_LIGHT) % len(light)
        return (light[self._turn :] + light[: self._turn])[:MOST_LIGHT]

    def _strides(
        self, queue: str, tenants: Sequence[str], room: int, weights: Mapping[str, float]
    ) -> list[tuple[str, int]]:
        known = [self._virtual[queue, tenant] for tenant in tenants if (queue, tenant) in self._virtual]
        base = min(known, default=0.0)  # who is new begins with the last of those who share
        turns = [(self._virtual.setdefault((queue, tenant), base), tenant) for tenant in tenants]
        heapq.heapify(turns)
        quotas: dict[str, int] = {}
        for _ in range(room):
            virtual, tenant = turns[0]
            quotas[tenant] = quotas.get(tenant, 0) + 1
            heapq.heapreplace(turns, (virtual + 1 / weights.get(tenant, 1.0), tenant))
        return list(quotas.items())

    def granted(
        self,
        group: Group,
        quotas: Sequence[tuple[str, int]],
        taken: Mapping[str, int],
        weights: Mapping[str, float],
        *,
        filled: bool,
        left: bool = False,
    ) -> bool:
        """A claim took so many of each tenant. `filled`: it had no more room, so that nobody is light for that; `left`:
        all the same, because others took what some had left.

        Whether the others may have more, now that it is known who has not: then ask again for the rest of the room.
        """
        light = self._light.get(group)
        if light is None:  # one tenant shares with nobody
            return False
        queue = group[2]
        fewer = [tenant for tenant, quota in quotas if taken.get(tenant, 0) < quota] if left or not filled else []
        news = any(tenant not in light for tenant in fewer)
        light.update(fewer)
        light.difference_update(tenant for tenant, quota in quotas if taken.get(tenant, 0) >= quota)
        busy = [
            self._virtual[queue, tenant]
            for tenant, _ in quotas
            if tenant not in light and (queue, tenant) in self._virtual
        ]
        base = min(busy, default=0.0)  # who had nothing to do saves nothing up
        for tenant in {tenant for tenant, _ in quotas} | taken.keys():
            virtual = max(self._virtual.get((queue, tenant), base), base)
            self._virtual[queue, tenant] = virtual + taken.get(tenant, 0) / weights.get(tenant, 1.0)
        return news
