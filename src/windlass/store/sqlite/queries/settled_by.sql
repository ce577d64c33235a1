-- Whether this very lease finished its job: the history keeps the token that did.
SELECT 1 FROM windlass_history WHERE id = :id AND token = :token
