"""The show of `windlass demo`: its jobs, its script, the stage it is shown on, and the check at the end."""
