-- The tasks of one tool that have not ended. The index has the name of the one that it replaces, which earlier versions
-- name in their queries: they find the same tasks with it.
DROP INDEX tasks_unfinished;

CREATE INDEX tasks_unfinished ON task_rows (phase, tool, created) WHERE phase <> 'ended' AND lease = 0;

-- The status of each task: the phase of a task that has not ended, and the outcome of one that has; 'ended' if its head
-- does not say the outcome (see schema/7.sql).
CREATE VIEW task_statuses AS
SELECT key, server, tool, phase, created, updated, CASE
    WHEN phase <> 'ended' THEN phase
    WHEN NOT json_valid(head) THEN 'ended'
    WHEN json_extract(head, '$.state') = 'faulted' THEN 'failed'
    WHEN json_extract(head, '$.state') = 'cancelled' THEN 'cancelled'
    WHEN json_extract(head, '$.state') = 'done' THEN
        CASE WHEN json_type(head, '$.result.is_error') = 'true' THEN 'failed' ELSE 'done' END
    ELSE 'ended'
END AS status FROM task_rows;

-- The number of tasks of each server, tool and status: in all if `hour` is -1, and otherwise those that were created, or
-- ended with the status, in the hour that began at `hour`, in milliseconds. The numbers of an hour stay when tasks are
-- deleted. Old hours are deleted.
CREATE TABLE tallies (
    hour INTEGER NOT NULL,
    server TEXT NOT NULL,
    tool TEXT NOT NULL,
    status TEXT NOT NULL,
    tasks INTEGER NOT NULL,
    PRIMARY KEY (hour, server, tool, status)
) STRICT, WITHOUT ROWID;

INSERT INTO tallies SELECT -1, server, tool, status, count(*) FROM task_statuses GROUP BY server, tool, status;

INSERT INTO tallies
SELECT created / 3600000 * 3600000 AS hour, server, tool, 'created', count(*)
FROM task_statuses GROUP BY hour, server, tool;

INSERT INTO tallies
SELECT updated / 3600000 * 3600000 AS hour, server, tool, status, count(*)
FROM task_statuses WHERE phase = 'ended' GROUP BY hour, server, tool, status;

-- The status under which a task is counted, NULL for the one that it has. This version counts the changes of a commit
-- together, and sets the column. Processes of earlier versions do not: triggers notice that, and count for them.
ALTER TABLE task_rows ADD COLUMN tallied TEXT;

CREATE TRIGGER tally_inserted AFTER INSERT ON task_rows WHEN NEW.tallied IS NULL BEGIN
    INSERT INTO tallies SELECT -1, server, tool, status, 1 FROM task_statuses WHERE key = NEW.key
    ON CONFLICT (hour, server, tool, status) DO UPDATE SET tasks = tasks + 1;
    INSERT INTO tallies VALUES (NEW.created / 3600000 * 3600000, NEW.server, NEW.tool, 'created', 1)
    ON CONFLICT (hour, server, tool, status) DO UPDATE SET tasks = tasks + 1;
    INSERT INTO tallies SELECT updated / 3600000 * 3600000, server, tool, status, 1
    FROM task_statuses WHERE key = NEW.key AND phase = 'ended'
    ON CONFLICT (hour, server, tool, status) DO UPDATE SET tasks = tasks + 1;
END;

-- Tasks of different phases have different statuses. A task is subtracted before its change, so that the view has the
-- status that it had.
CREATE TRIGGER tally_before_change BEFORE UPDATE OF phase ON task_rows
WHEN OLD.phase <> NEW.phase AND OLD.tallied IS NEW.tallied BEGIN
    UPDATE tallies SET tasks = tasks - 1
    WHERE hour = -1 AND server = OLD.server AND tool = OLD.tool
        AND status = coalesce(OLD.tallied, (SELECT status FROM task_statuses WHERE key = OLD.key));
END;

CREATE TRIGGER tally_changed AFTER UPDATE OF phase ON task_rows
WHEN OLD.phase <> NEW.phase AND OLD.tallied IS NEW.tallied BEGIN
    UPDATE task_rows SET tallied = NULL WHERE key = NEW.key;
    INSERT INTO tallies SELECT -1, server, tool, status, 1 FROM task_statuses WHERE key = NEW.key
    ON CONFLICT (hour, server, tool, status) DO UPDATE SET tasks = tasks + 1;
    INSERT INTO tallies SELECT updated / 3600000 * 3600000, server, tool, status, 1
    FROM task_statuses WHERE key = NEW.key AND phase = 'ended'
    ON CONFLICT (hour, server, tool, status) DO UPDATE SET tasks = tasks + 1;
END;

-- Tasks that are deleted are not many, so this trigger counts for all versions.
CREATE TRIGGER tally_deleted BEFORE DELETE ON task_rows BEGIN
    UPDATE tallies SET tasks = tasks - 1
    WHERE hour = -1 AND server = OLD.server AND tool = OLD.tool
        AND status = coalesce(OLD.tallied, (SELECT status FROM task_statuses WHERE key = OLD.key));
END;
