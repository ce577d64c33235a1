"""A state machine that does everything at once to a store, beside a plain model of what must be true."""
