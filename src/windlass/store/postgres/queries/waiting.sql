-- What a job waits for.   $1 id
SELECT need, pending, succeeded, signal, wake_at FROM windlass.waits WHERE job = $1
