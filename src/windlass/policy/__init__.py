"""Rules without I/O: retries, cron, unique keys, limits, tenants' shares, and what follows from an outcome."""
