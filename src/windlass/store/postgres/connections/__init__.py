"""Connections to PostgreSQL: the pool, the heartbeat, wake-ups, and what caused an error of the server."""
