-- What a job waits for.   :id
SELECT need, pending, succeeded, signal, wake_at FROM windlass_waits WHERE job = :id
