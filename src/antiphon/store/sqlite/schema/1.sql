-- The first schema. A later one is a file of its own; this one never changes again.

-- `key` grows with each task. `lease` is when it ends, 0 for none; only a task that is ready has one.
-- `format` says how `head` is written: 1 is JSON text.
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

-- What a worker may take, oldest first. It holds nothing else, so a million waiting tasks cost it nothing.
CREATE INDEX tasks_free ON tasks (tool, created) WHERE phase = 'ready' AND lease = 0;

CREATE INDEX tasks_leased ON tasks (lease) WHERE lease > 0;

CREATE INDEX tasks_expiring ON tasks (expires) WHERE expires IS NOT NULL;

-- One log a task, its entries side by side. `format` says how `data` is written: 1 is JSON text.
CREATE TABLE entries (
    task INTEGER NOT NULL,
    number INTEGER NOT NULL,
    kind TEXT NOT NULL,
    at INTEGER NOT NULL,
    format INTEGER NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (task, number)
) STRICT, WITHOUT ROWID;

-- How many tasks are in each phase, so that nobody has to count.
CREATE TABLE counts (
    phase TEXT PRIMARY KEY,
    tasks INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO counts VALUES ('ready', 0), ('waiting', 0), ('ended', 0);

-- What the last commits changed, for the watchers of other processes. `origin` is the process that wrote,
-- `touched` a JSON list of ids, `ready` whether a task became free to take. Old rows are deleted.
CREATE TABLE commits (
    number INTEGER PRIMARY KEY,
    origin TEXT NOT NULL,
    touched TEXT NOT NULL,
    ready INTEGER NOT NULL
) STRICT;

-- Keys that may be used once, until when.
CREATE TABLE used (
    key TEXT PRIMARY KEY,
    until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX used_until ON used (until);
