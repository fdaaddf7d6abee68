-- Waiting tasks that wake by themselves, and that can be found by a tag. `wakes` is when a waiting task becomes ready,
-- NULL for never. `tags` is a JSON list of texts, NULL for none. They have no meaning in a task that does not wait:
-- processes of schema 4 change a task without them.
ALTER TABLE task_rows ADD COLUMN wakes INTEGER;

ALTER TABLE task_rows ADD COLUMN tags TEXT;

-- The tasks of each server that wake, earliest first. The index holds no other tasks, and it does not name the phase,
-- so that other tasks are written as before.
CREATE INDEX tasks_waking_on_server ON task_rows (server, wakes) WHERE wakes IS NOT NULL;

-- The tags of waiting tasks, one row each, so that the tasks with a tag are found oldest first.
CREATE TABLE task_tags (
    tag TEXT NOT NULL,
    created INTEGER NOT NULL,
    task INTEGER NOT NULL,
    PRIMARY KEY (tag, created, task)
) STRICT, WITHOUT ROWID;

CREATE INDEX tags_of_task ON task_tags (task);

-- A process of an earlier version that changes a task through the view ends its wait, unless the task goes on waiting.
DROP TRIGGER tasks_update;

CREATE TRIGGER tasks_update INSTEAD OF UPDATE ON tasks BEGIN
    UPDATE task_rows SET
        phase = NEW.phase, version = NEW.version, updated = NEW.updated, expires = NEW.expires, token = NEW.token,
        worker = NEW.worker, lease = NEW.lease, format = NEW.format, head = NEW.head,
        wakes = CASE WHEN NEW.phase = 'waiting' THEN wakes END, tags = CASE WHEN NEW.phase = 'waiting' THEN tags END
    WHERE key = OLD.key;
    DELETE FROM task_tags WHERE task = OLD.key AND NEW.phase <> 'waiting';
END;

-- Events, which are kept until the time `until`. The numbers of deleted events are not used again, because a task
-- remembers the number of the last event that it has read. `format` is the format of `data`: 1 is JSON text.
CREATE TABLE events (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    topic TEXT NOT NULL,
    id TEXT NOT NULL,
    at INTEGER NOT NULL,
    until INTEGER NOT NULL,
    format INTEGER NOT NULL,
    data TEXT NOT NULL
) STRICT;

CREATE UNIQUE INDEX events_by_id ON events (topic, id);

CREATE INDEX events_of_topic ON events (topic, number);

CREATE INDEX events_until ON events (until);
