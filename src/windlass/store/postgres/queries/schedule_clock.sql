-- What time it is, in microseconds since the epoch.   $1 []
SELECT (extract(epoch FROM windlass.now()) * 1000000)::bigint FROM json_array_length(CAST($1 AS json))
