-- One job, wherever it is. One statement and so one snapshot: a job on its way to the history is in one place only.
SELECT {columns} FROM windlass_jobs AS jobs WHERE jobs.id = :id
UNION ALL
SELECT {columns} FROM windlass_history AS jobs WHERE jobs.id = :id
