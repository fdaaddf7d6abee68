-- The first schema. A later schema is another file; the statements of this one never change.
--
-- A later schema only adds, because processes of this version run beside processes of the next one during
-- an upgrade. What a version no longer uses is removed one version later.

-- `key` grows with each task. `lease` is when the lease ends by the clock of this database, 0 for no lease;
-- only a ready task has one. `was` is the phase before the last entry, for the counts. `format` is the format
-- of `head`: 1 is JSON text. Half of each page stays empty, so that a task is updated within its page.
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

-- The claimable tasks, oldest first. The indexes hold no other tasks, so finished tasks do not slow them down.
CREATE INDEX tasks_free ON tasks (created, key) WHERE phase = 'ready' AND lease = 0;

CREATE INDEX tasks_free_of_tool ON tasks (tool, created, key) WHERE phase = 'ready' AND lease = 0;

CREATE INDEX tasks_leased ON tasks (lease) WHERE lease > 0;

CREATE INDEX tasks_expiring ON tasks (expires, key) WHERE expires IS NOT NULL;

-- One log per task. `format` is the format of `data`: 1 is JSON text.
CREATE TABLE entries (
    task bigint NOT NULL,
    number bigint NOT NULL,
    kind text COLLATE "C" NOT NULL,
    at bigint NOT NULL,
    format smallint NOT NULL,
    data text NOT NULL,
    PRIMARY KEY (task, number)
);

-- The number of tasks in each phase, so that nothing has to count the tasks. Each process updates its own
-- rows, so that no process waits for another.
CREATE TABLE counts (
    slot integer NOT NULL,
    phase text COLLATE "C" NOT NULL,
    tasks bigint NOT NULL,
    PRIMARY KEY (slot, phase)
) WITH (fillfactor = 20);

-- Keys that may be used once, until the time `until`.
CREATE TABLE used (
    key text COLLATE "C" PRIMARY KEY,
    until bigint NOT NULL
);

CREATE INDEX used_until ON used (until);
