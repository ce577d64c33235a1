-- Did this very lease finish its job? Asked when the answer to a commit was lost.   $1 id   $2 token
SELECT EXISTS (SELECT FROM windlass.history WHERE id = $1 AND token = $2)
