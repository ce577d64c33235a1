"""The processes that `windlass worker` and `windlass dev` start, watch and replace."""
