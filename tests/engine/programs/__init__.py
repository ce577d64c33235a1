"""Programs for the tests of handlers that run in child processes."""
