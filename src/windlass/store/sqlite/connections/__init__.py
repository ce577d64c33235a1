"""Connections to a SQLite file: the writer and the readers, the heartbeat, and wake-ups."""
