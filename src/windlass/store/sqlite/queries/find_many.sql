-- Jobs by their ids, wherever they are.   :ids
SELECT {columns} FROM windlass_jobs AS jobs WHERE jobs.id IN (SELECT value FROM json_each(:ids))
UNION ALL
SELECT {columns} FROM windlass_history AS jobs WHERE jobs.id IN (SELECT value FROM json_each(:ids))
