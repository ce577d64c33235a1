-- The tables of the schema, whoever made them.
SELECT array_agg(relname::text ORDER BY relname)
  FROM pg_class
 WHERE relnamespace = to_regnamespace('windlass') AND relkind IN ('r', 'p', 'v', 'm')
