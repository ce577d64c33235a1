-- Take a resumed job from the history.
DELETE FROM windlass_history WHERE id = :id AND status IN (SELECT value FROM json_each(:sources))
