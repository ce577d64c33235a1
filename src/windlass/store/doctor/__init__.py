"""The checks of `windlass doctor` that both stores share."""
