-- The job types and pipelines that workers announced at their start, for processes that only enqueue. The last
-- announcement of a name counts.
CREATE TABLE windlass.types (
    name         text        NOT NULL PRIMARY KEY,
    type         text        NOT NULL,                         -- of a pipeline: the type of its first phase
    document     json        NOT NULL,
    announced_at timestamptz NOT NULL DEFAULT windlass.now()
);
