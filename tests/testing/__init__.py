"""Stories of `windlass.testing`: what a user's own tests can rely on."""
