"""The logic that both stores share: generators of statements, and pure helpers for rows, searches and messages."""
