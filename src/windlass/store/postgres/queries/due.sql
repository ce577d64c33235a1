jobs.run_at <= greatest(windlass.now(), to_timestamp($18::float8))
           AND (jobs.run_at <= windlass.now() OR jobs.run_at <= greatest(jobs.created_at, jobs.updated_at))
