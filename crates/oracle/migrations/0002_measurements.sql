-- One row. Whoever adds measurements updates it first, and never the row of `mesh`: rows
-- of the ledger are numbered in the order in which they become visible.
CREATE TABLE ledger (
    id   BIGINT PRIMARY KEY CHECK (id = 1),
    next BIGINT NOT NULL
);
INSERT INTO ledger (id, next) VALUES (1, 1);

-- Hosts that were measured, by the key that stands for a member; short numbers for the
-- tables below. At most one for each row of `keys`.
CREATE TABLE hosts (
    id  BIGINT PRIMARY KEY,
    key TEXT   NOT NULL UNIQUE
);

-- Values are whole numbers: bit/s, ns or 10^-9, as the metric says. Of answers to one order
-- the first of each reporter counts.
CREATE TABLE measurements (
    seq      BIGINT PRIMARY KEY,
    sender   BIGINT NOT NULL,
    receiver BIGINT NOT NULL,
    metric   TEXT   NOT NULL,
    method   TEXT   NOT NULL,
    bound    TEXT   NOT NULL,
    reporter BIGINT NOT NULL,
    order_id BIGINT,
    value    BIGINT NOT NULL,
    spread   BIGINT,
    bytes    BIGINT NOT NULL,
    measured BIGINT NOT NULL,
    seen     BIGINT,
    UNIQUE (order_id, reporter)
);
CREATE INDEX measurements_by_date ON measurements (measured);
CREATE INDEX measurements_by_leg ON measurements (sender, receiver, measured);

-- What stands for older measurements: one row for each topic and 6 h.
CREATE TABLE summaries (
    sender   BIGINT NOT NULL,
    receiver BIGINT NOT NULL,
    metric   TEXT   NOT NULL,
    method   TEXT   NOT NULL,
    bound    TEXT   NOT NULL,
    reporter BIGINT NOT NULL,
    start    BIGINT NOT NULL,
    median   BIGINT NOT NULL,
    least    BIGINT NOT NULL,
    most     BIGINT NOT NULL,
    count    BIGINT NOT NULL,
    PRIMARY KEY (sender, receiver, metric, method, bound, reporter, start)
);
CREATE INDEX summaries_by_date ON summaries (start);

-- Nodes that went down, or came up again.
CREATE TABLE changes (
    seq      BIGINT PRIMARY KEY,
    node     BIGINT NOT NULL,
    state    TEXT   NOT NULL,
    why      TEXT   NOT NULL,
    happened BIGINT NOT NULL
);

-- Two that say different things of one leg, in bit/s.
CREATE TABLE disagreements (
    seq      BIGINT PRIMARY KEY,
    sender   BIGINT NOT NULL,
    receiver BIGINT NOT NULL,
    claimant BIGINT NOT NULL,
    claimed  BIGINT NOT NULL,
    seen     BIGINT,
    believed BIGINT,
    happened BIGINT NOT NULL
);

-- One row: which oracle schedules, under which number, until when by the database's own
-- clock (ms since 1970).
CREATE TABLE lease (
    id      BIGINT PRIMARY KEY CHECK (id = 1),
    holder  TEXT   NOT NULL,
    term    BIGINT NOT NULL,
    expires BIGINT NOT NULL
);
INSERT INTO lease (id, holder, term, expires) VALUES (1, '', 0, 0);
