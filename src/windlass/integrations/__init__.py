"""The integrations with FastAPI, Django and Flask; nothing else in Windlass imports a framework."""
