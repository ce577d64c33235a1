-- Jobs by their ids, wherever they are.   $1 ids
SELECT {columns} FROM windlass.jobs WHERE jobs.id = ANY ($1::uuid[])
UNION ALL
SELECT {columns} FROM windlass.history AS jobs WHERE jobs.id = ANY ($1::uuid[])
