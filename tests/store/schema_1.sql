-- A file of the first schema, as the version that had it wrote it. Never changed.
CREATE TABLE commits (
    number INTEGER PRIMARY KEY,
    origin TEXT NOT NULL,
    touched TEXT NOT NULL,
    ready INTEGER NOT NULL
) STRICT;
INSERT INTO "commits" VALUES(1,'a7384cd1675d1161','["old"]',1);
INSERT INTO "commits" VALUES(2,'a7384cd1675d1161','["old"]',0);
INSERT INTO "commits" VALUES(3,'a7384cd1675d1161','["next"]',1);
INSERT INTO "commits" VALUES(4,'a7384cd1675d1161','[]',1);
INSERT INTO "commits" VALUES(5,'a7384cd1675d1161','[]',1);
INSERT INTO "commits" VALUES(6,'a7384cd1675d1161','[]',1);
CREATE TABLE counts (
    phase TEXT PRIMARY KEY,
    tasks INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO "counts" VALUES('ended',0);
INSERT INTO "counts" VALUES('ready',1);
INSERT INTO "counts" VALUES('waiting',1);
CREATE TABLE entries (
    task INTEGER NOT NULL,
    number INTEGER NOT NULL,
    kind TEXT NOT NULL,
    at INTEGER NOT NULL,
    format INTEGER NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (task, number)
) STRICT, WITHOUT ROWID;
INSERT INTO "entries" VALUES(1,1,'begun',1800000000000,1,'{"city":"Oslo"}');
INSERT INTO "entries" VALUES(1,2,'ask',1800000000000,1,'"name"');
INSERT INTO "entries" VALUES(2,1,'begun',1800000000000,1,'1');
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
INSERT INTO "tasks" VALUES(1,'old','ann','echo','waiting',2,1800000000000,1800000000000,NULL,0,NULL,0,1,'{"asks":["name"]}');
INSERT INTO "tasks" VALUES(2,'next','ann','echo','ready',1,1800000000000,1800000000000,NULL,3,NULL,0,1,'{"status":"working"}');
CREATE TABLE used (
    key TEXT PRIMARY KEY,
    until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX tasks_by_id ON tasks (id);
CREATE INDEX tasks_by_age ON tasks (created);
CREATE INDEX tasks_of_principal ON tasks (principal, created);
CREATE INDEX tasks_free ON tasks (tool, created) WHERE phase = 'ready' AND lease = 0;
CREATE INDEX tasks_leased ON tasks (lease) WHERE lease > 0;
CREATE INDEX tasks_expiring ON tasks (expires) WHERE expires IS NOT NULL;
CREATE INDEX used_until ON used (until);
PRAGMA user_version = 1;
PRAGMA application_id = 1097757808;
