-- Jobs that somebody asked to cancel and whose worker died before it could heed: nobody may start them again.
--
--   :sources the states that are claimable   :page
SELECT id FROM windlass_jobs
 WHERE cancel_requested AND status IN (SELECT value FROM json_each(:sources))
 LIMIT :page
