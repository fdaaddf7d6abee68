-- The first schema. A later one is a file of its own; this one never changes again.
--
-- A later one only adds: instances of this version go on working beside those of the next, while the first
-- of them are being replaced. What they must not see any more is taken away one version after that.

-- `key` grows with each task. `lease` is when it ends by this database's clock, 0 for none; only a task that
-- is ready has one. `was` is the phase before the last entry, for the counts. `format` says how `head` is
-- written: 1 is JSON text. Half of each page is left empty, so that a task grows where it lies.
CREATE TABLE tasks (
    key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id text COLLATE "C" NOT NULL,
    principal text COLLATE "C" NOT NULL,
    tool text COLLATE "C" NOT NULL,
    phase text COLLATE "C" NOT NULL,
    was text COLLATE "C",
    version bigint NOT NULL,
    created bigint NOT NULL,
    updated bigint NOT NULL,
    expires bigint,
    token bigint NOT NULL,
    worker text COLLATE "C",
    lease bigint NOT NULL,
    format smallint NOT NULL,
    head text NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

CREATE UNIQUE INDEX tasks_by_id ON tasks (id);

CREATE INDEX tasks_by_age ON tasks (created, key);

CREATE INDEX tasks_of_principal ON tasks (principal, created, key);

-- What a worker may take, oldest first. They hold nothing else, so finished tasks cost them nothing.
CREATE INDEX tasks_free ON tasks (created, key) WHERE phase = 'ready' AND lease = 0;

CREATE INDEX tasks_free_of_tool ON tasks (tool, created, key) WHERE phase = 'ready' AND lease = 0;

CREATE INDEX tasks_leased ON tasks (lease) WHERE lease > 0;

CREATE INDEX tasks_expiring ON tasks (expires, key) WHERE expires IS NOT NULL;

-- One log a task. `format` says how `data` is written: 1 is JSON text.
CREATE TABLE entries (
    task bigint NOT NULL,
    number bigint NOT NULL,
    kind text COLLATE "C" NOT NULL,
    at bigint NOT NULL,
    format smallint NOT NULL,
    data text NOT NULL,
    PRIMARY KEY (task, number)
);

-- How many tasks are in each phase, so that nobody has to count. Each process adds to a row of its own,
-- so that none waits for another.
CREATE TABLE counts (
    slot integer NOT NULL,
    phase text COLLATE "C" NOT NULL,
    tasks bigint NOT NULL,
    PRIMARY KEY (slot, phase)
) WITH (fillfactor = 20);

-- Keys that may be used once, until when.
CREATE TABLE used (
    key text COLLATE "C" PRIMARY KEY,
    until bigint NOT NULL
);

CREATE INDEX used_until ON used (until);
