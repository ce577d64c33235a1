-- A new incarnation of a worker.
INSERT INTO windlass_workers (id, name, started_at, alive_until, concurrency, queues, types, isolates)
VALUES (:id, :name, :now, :now + :lease, :concurrency, :queues, :types, :isolates)
