"""What commands read from the command line: shared options, filters, job ids, gates and arguments of jobs."""
