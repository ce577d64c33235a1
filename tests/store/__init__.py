"""The contract of a store: one suite, run by every implementation on a real database."""
