"""The documentation, tried."""
