-- Running jobs of one worker that somebody asked to cancel.
SELECT id FROM windlass_jobs WHERE worker = :worker AND cancel_requested AND status = 'running'
