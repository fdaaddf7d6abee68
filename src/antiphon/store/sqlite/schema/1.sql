-- The first schema. A later schema is another file; the statements of this one never change.

-- `key` grows with each task. `lease` is when the lease ends, 0 for no lease; only a ready task has one.
-- `format` is the format of `head`: 1 is JSON text.
CREATE TABLE tasks (
    key INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    principal TEXT NOT NULL,
    tool TEXT NOT NULL,
    phase TEXT NOT NULL,
    version INTEGER NOT NULL,
    created INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    expires INTEGER,
    token INTEGER NOT NULL,
    worker TEXT,
    lease INTEGER NOT NULL,
    format INTEGER NOT NULL,
    head TEXT NOT NULL
) STRICT;

CREATE UNIQUE INDEX tasks_by_id ON tasks (id);

CREATE INDEX tasks_by_age ON tasks (created);

CREATE INDEX tasks_of_principal ON tasks (principal, created);

-- The claimable tasks, oldest first. The index holds no other tasks, so waiting tasks do not slow it down.
CREATE INDEX tasks_free ON tasks (tool, created) WHERE phase = 'ready' AND lease = 0;

CREATE INDEX tasks_leased ON tasks (lease) WHERE lease > 0;

CREATE INDEX tasks_expiring ON tasks (expires) WHERE expires IS NOT NULL;

-- One log per task, its entries side by side. `format` is the format of `data`: 1 is JSON text.
CREATE TABLE entries (
    task INTEGER NOT NULL,
    number INTEGER NOT NULL,
    kind TEXT NOT NULL,
    at INTEGER NOT NULL,
    format INTEGER NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (task, number)
) STRICT, WITHOUT ROWID;

-- The number of tasks in each phase, so that nothing has to count the tasks.
CREATE TABLE counts (
    phase TEXT PRIMARY KEY,
    tasks INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO counts VALUES ('ready', 0), ('waiting', 0), ('ended', 0);

-- The changes of the last commits, for the watchers of other processes. `origin` is the process that wrote,
-- `touched` a JSON list of task ids, and `ready` whether a task became claimable. Old rows are deleted.
CREATE TABLE commits (
    number INTEGER PRIMARY KEY,
    origin TEXT NOT NULL,
    touched TEXT NOT NULL,
    ready INTEGER NOT NULL
) STRICT;

-- Keys that may be used once, until the time `until`.
CREATE TABLE used (
    key TEXT PRIMARY KEY,
    until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX used_until ON used (until);
