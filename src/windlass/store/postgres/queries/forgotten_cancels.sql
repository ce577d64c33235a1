-- Jobs that somebody asked to cancel and whose worker died before it could heed: nobody may start them again.
SELECT id FROM windlass.jobs WHERE cancel_requested AND status IN ('queued', 'failed') LIMIT 500
