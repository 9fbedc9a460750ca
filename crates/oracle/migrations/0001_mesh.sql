-- Types and statements that SQLite and PostgreSQL share: TEXT and BIGINT alone.
-- Keys, hashes and signed bytes are hexadecimal; dates are nanoseconds since 1970.

-- One row. Whoever writes anything updates it first: that takes SQLite's write
-- lock, or PostgreSQL's lock on the row, so that writers come one after another.
CREATE TABLE mesh (
    id      BIGINT PRIMARY KEY CHECK (id = 1),
    mesh    TEXT   NOT NULL,
    version BIGINT NOT NULL,
    rules   TEXT   NOT NULL,
    signed  TEXT   NOT NULL
);

-- Lists are JSON arrays.
CREATE TABLE members (
    name      TEXT   PRIMARY KEY,
    node      TEXT   UNIQUE,
    client    TEXT   NOT NULL UNIQUE,
    addresses TEXT   NOT NULL,
    roles     TEXT   NOT NULL,
    tags      TEXT   NOT NULL,
    joined    BIGINT NOT NULL
);

-- Every key that ever belonged, also after it was revoked: it never joins again.
CREATE TABLE keys (
    key     TEXT   PRIMARY KEY,
    name    TEXT   NOT NULL,
    revoked BIGINT
);

-- The maker is the key that stands for a member; none: a local process. Void since its
-- maker was revoked; the row stays to tell so.
CREATE TABLE tokens (
    hash    TEXT   PRIMARY KEY,
    maker   TEXT,
    voided  BIGINT,
    roles   TEXT   NOT NULL,
    tags    TEXT   NOT NULL,
    name    TEXT,
    expires BIGINT NOT NULL,
    used_by TEXT,
    used_at BIGINT
);

-- Who did what, for the operator.
CREATE TABLE events (
    happened BIGINT NOT NULL,
    event    TEXT   NOT NULL,
    subject  TEXT   NOT NULL,
    actor    TEXT   NOT NULL
);
CREATE INDEX events_by_date ON events (happened);
