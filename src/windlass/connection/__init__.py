"""Enqueue on the caller's own connection: the job commits with the caller's rows, or not at all.

In:   `conn=` of an enqueue, whatever the caller already has open
Out:  a `CallerConnection` that runs one statement in the caller's transaction
Next: store/*/queries/enqueue.sql

`borrow()` recognises the object by the names of its classes, so that no driver is imported for it. What
cannot carry an enqueue that rolls back with the caller's rows is refused with `UnusableConnection`.
"""

from __future__ import annotations

from windlass.connection.borrowed import CallerConnection
from windlass.connection.location import alocation, check_identity, location
from windlass.connection.recognise import borrow

__all__ = ["CallerConnection", "alocation", "borrow", "check_identity", "location"]
