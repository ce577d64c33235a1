"""An open stream asks again whether its caller may listen, however much there is to tell."""

from __future__ import annotations

import asyncio

import pytest

from windlass.web.live import feed as live


async def test_a_stream_that_moves_all_the_time_ends_when_its_token_is_revoked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a list that moves at every turn, then the caller is asked about all the same."""
    monkeypatch.setattr(live, "BEAT", 0.0)
    moves = asyncio.Event()
    moves.set()
    turns = asked = 0

    async def revoked_later() -> bool:
        nonlocal asked
        asked += 1
        return asked < 3

    async for _ in live.Feed().turns(lambda: [moves], revoked_later):
        turns += 1
        assert turns < 1_000, "nothing asked whether the token is still good"

    assert asked == 3
