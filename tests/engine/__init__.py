"""Stories of the runtime: a client and a worker in one process, on both stores."""
