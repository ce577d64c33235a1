"""What a program declares: job types, their options and follow-ups, pipelines, and the registry that holds them."""
