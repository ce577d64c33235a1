-- API tokens. The secret of a token is not stored, only its SHA-256 in hex.
CREATE TABLE windlass.tokens (
    id         uuid        NOT NULL PRIMARY KEY,
    name       text        NOT NULL,
    hash       text        NOT NULL UNIQUE,
    role       text        NOT NULL CHECK (role IN ('viewer', 'operator', 'admin')),
    tenant     text,                                         -- null: all tenants
    created_at timestamptz NOT NULL DEFAULT windlass.now(),
    created_by text,
    expires_at timestamptz,                                  -- null: never
    revoked_at timestamptz,
    revoked_by text,
    CONSTRAINT tokens_of_a_tenant_are_no_admins CHECK (tenant IS NULL OR role <> 'admin')
);
CREATE UNIQUE INDEX tokens_name ON windlass.tokens (name) WHERE revoked_at IS NULL;

-- Pages of the audit of one actor, and of one tenant. Both are partial: each end of a job is a row of the audit, and a
-- row without an actor and of the default tenant, as most programs write, is in neither of them.
CREATE INDEX audit_actor ON windlass.audit (actor, number) WHERE actor IS NOT NULL;
CREATE INDEX audit_tenant ON windlass.audit (tenant, number) WHERE tenant <> 'default';
