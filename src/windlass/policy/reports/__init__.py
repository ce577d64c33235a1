"""How a page or a command tells it: whether all is well, an overview, the life and the story of a job, its graph."""
