"""The store on PostgreSQL: its Python, its statements in `queries/` and its schema in `migrations/`."""
