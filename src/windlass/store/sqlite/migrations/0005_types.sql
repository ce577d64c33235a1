-- The job types and pipelines that workers announced at their start, for processes that only enqueue. The last
-- announcement of a name counts.
CREATE TABLE windlass_types (
    name         TEXT    NOT NULL PRIMARY KEY,
    type         TEXT    NOT NULL,                             -- of a pipeline: the type of its first phase
    document     TEXT    NOT NULL,                             -- JSON
    announced_at INTEGER NOT NULL
) STRICT;
