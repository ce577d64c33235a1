-- A dead job is gone.   :id   :sources the states that allow it
DELETE FROM windlass_jobs WHERE id = :id AND status IN (SELECT value FROM json_each(:sources))
