"""Tenants share a queue by weight (stride scheduling). No place stays empty while any tenant has jobs.

Every job that a tenant is given moves its virtual time forward by 1/weight; the tenant with the lowest virtual time is
served next. Each worker keeps virtual times in its own memory, so nothing has to be written to the store. Shares that
hold for each worker hold for all workers together. The code here is pure.

A claim needs quotas before it knows how many jobs each tenant has. A tenant that recently had fewer jobs than its quota
is `light`: it is offered its share first, and the quotas of the other tenants fill the whole room in addition. So a
light tenant does not wait for other tenants, and no place stays empty because of a light tenant.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from math import ceil

MOST_LIGHT = 200
"""Light tenants that are offered their share in one claim; if there are more, they take turns."""

Group = tuple[int, int, str]
"""Phase rank, urgency and queue. Tenants share places inside one group."""


class Fairness:
    """The tenants' shares in the claims of one worker."""

    def __init__(self) -> None:
        self._virtual: dict[tuple[str, str], float] = {}  # (queue, tenant) → its virtual time: jobs / weight
        self._light: dict[Group, set[str]] = {}
        self._present: dict[Group, set[str]] = {}  # tenants that had jobs at the last claim
        self._turn = 0

    def quotas(
        self, group: Group, tenants: Sequence[str], room: int, weights: Mapping[str, float]
    ) -> list[tuple[str, int]]:
        """How many of `room` places each tenant may take now, in the order in which tenants are served."""
        self._admit_returning(group, tenants)
        if len(tenants) <= 1:
            return [(tenant, room) for tenant in tenants]
        known = self._light.setdefault(group, set())
        light = self._take_turns([tenant for tenant in tenants if tenant in known])
        heavy = [tenant for tenant in tenants if tenant not in known]
        if not heavy:  # no tenant is known to have more jobs than its share: each may take the whole room
            light.sort(key=lambda tenant: self._virtual.get((group[2], tenant), 0.0))
            return [(tenant, room) for tenant in light]
        together = sum(weights.get(tenant, 1.0) for tenant in tenants)
        beside = [(tenant, max(1, ceil(room * weights.get(tenant, 1.0) / together))) for tenant in light]
        return beside + self._strides(group[2], heavy, room, weights)

    def _admit_returning(self, group: Group, tenants: Sequence[str]) -> None:
        """Start a returning tenant at the lowest virtual time of those that stayed: absence earns no credit."""
        queue, before = group[2], self._present.get(group, set())
        self._present[group] = set(tenants)
        stayed = [self._virtual.get((queue, tenant), 0.0) for tenant in tenants if tenant in before]
        for tenant in tenants:
            if stayed and tenant not in before and (queue, tenant) in self._virtual:
                self._virtual[queue, tenant] = max(self._virtual[queue, tenant], min(stayed))

    def _take_turns(self, light: list[str]) -> list[str]:
        if len(light) <= MOST_LIGHT:
            return light
        self._turn = (self._turn + MOST_LIGHT) % len(light)
        return (light[self._turn :] + light[: self._turn])[:MOST_LIGHT]

    def _strides(
        self, queue: str, tenants: Sequence[str], room: int, weights: Mapping[str, float]
    ) -> list[tuple[str, int]]:
        known = [self._virtual[queue, tenant] for tenant in tenants if (queue, tenant) in self._virtual]
        base = min(known, default=0.0)  # a new tenant starts at the lowest virtual time of those that share
        turns = [(self._virtual.setdefault((queue, tenant), base), tenant) for tenant in tenants]
        heapq.heapify(turns)
        quotas: dict[str, int] = {}
        for _ in range(room):
            virtual, tenant = turns[0]
            quotas[tenant] = quotas.get(tenant, 0) + 1
            heapq.heapreplace(turns, (virtual + 1 / weights.get(tenant, 1.0), tenant))
        return list(quotas.items())

    def record_claim(
        self,
        group: Group,
        quotas: Sequence[tuple[str, int]],
        taken: Mapping[str, int],
        weights: Mapping[str, float],
        *,
        filled: bool,
        reassigned: bool = False,
    ) -> bool:
        """Record how many jobs of each tenant a claim took.

        `filled`: the claim used its whole room, so a tenant below its quota is not evidence of a short queue.
        `reassigned`: it is evidence all the same, because other tenants were given its unused quota.

        Returns whether the other tenants may have more jobs, now that the light ones are known: then the claim asks
        again for the rest of its room.
        """
        light = self._light.get(group)
        if light is None:  # the group has one tenant, which shares with no other
            return False
        queue = group[2]
        evidence = reassigned or not filled
        fewer = [tenant for tenant, quota in quotas if taken.get(tenant, 0) < quota] if evidence else []
        found_light = any(tenant not in light for tenant in fewer)
        light.update(fewer)
        light.difference_update(tenant for tenant, quota in quotas if taken.get(tenant, 0) >= quota)
        busy = [
            self._virtual[queue, tenant]
            for tenant, _ in quotas
            if tenant not in light and (queue, tenant) in self._virtual
        ]
        # Idle tenants do not accumulate credit: they start at the lowest virtual time of the busy ones.
        base = min(busy, default=0.0)
        for tenant in {tenant for tenant, _ in quotas} | taken.keys():
            virtual = max(self._virtual.get((queue, tenant), base), base)
            self._virtual[queue, tenant] = virtual + taken.get(tenant, 0) / weights.get(tenant, 1.0)
        return found_light
