"""No models: the schema is Windlass's own. Django sends `post_migrate` only to apps that have this module."""
