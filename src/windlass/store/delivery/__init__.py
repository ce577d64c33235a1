"""Delivery through a broker, for both stores: the outbox, claims of delivered jobs, and undelivered jobs."""
