"""The places of each claim that go to the oldest due jobs, whatever their priority."""

from __future__ import annotations


class AgeingShare:
    """One place in `one_in`, carried over: with 10, a claim for one job owes a tenth of a place."""

    def __init__(self, one_in: int) -> None:
        self._one_in = one_in  # 0: no places
        self._owed = 0.0

    def places(self, room: int) -> int:
        if not self._one_in:
            return 0
        self._owed = min(self._owed + room / self._one_in, room)
        places = int(self._owed)
        self._owed -= places
        return places
