INSERT INTO windlass.workers (id, name, alive_until, concurrency, queues, types, isolates)
VALUES ($1, $2, windlass.now() + make_interval(secs => $3::float8), $4, $5::text[], $6::text[], $7)
