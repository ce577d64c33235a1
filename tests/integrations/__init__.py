"""Windlass inside web frameworks, each with a small project of its own."""
