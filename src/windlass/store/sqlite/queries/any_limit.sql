-- Whether any limit or rate was ever declared.
SELECT 1 FROM windlass_limits LIMIT 1
