-- A dead job is gone.   $1 id   $2 the states that allow it
DELETE FROM windlass.jobs WHERE id = $1 AND status = ANY ($2::text[])
RETURNING status
