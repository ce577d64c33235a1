-- The schema number that each worker's program knows. null: a program from before this migration, which knows 9 at most. `windlass
-- migrate` does not take the schema two numbers ahead of a live worker.
ALTER TABLE windlass_workers ADD COLUMN schema_number INTEGER;
