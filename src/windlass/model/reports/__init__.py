"""What pages and commands tell of jobs and of the system, as plain values: health, overview, story, error groups."""
