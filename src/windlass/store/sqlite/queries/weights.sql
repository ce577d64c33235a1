-- The weights of tenants that have one.
SELECT name, weight FROM windlass_tenants
