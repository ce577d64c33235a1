-- One job, wherever it is. One statement and so one snapshot: a job on its way to the history is in one place only.
SELECT {columns} FROM windlass.jobs WHERE jobs.id = $1
UNION ALL
SELECT {columns} FROM windlass.history AS jobs WHERE jobs.id = $1
