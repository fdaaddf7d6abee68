-- The server of each task: servers of different names share a store without running each other's tasks. Tasks of
-- earlier versions have the name '', and every server runs them.
--
-- Earlier versions insert into `tasks` without naming its columns, so a new column there would break them. Their
-- `tasks` is a view from now on, whose triggers change the table. This version uses the table `task_rows` only.
ALTER TABLE tasks RENAME TO task_rows;

ALTER TABLE task_rows ADD COLUMN server TEXT NOT NULL DEFAULT '';

-- The claimable tasks of each server, oldest first, so that another server's backlog does not slow a claim down.
-- An index with the server replaces the one without: each index slows writing down, and earlier versions find the
-- same tasks without it, only slower.
DROP INDEX tasks_free;

CREATE INDEX tasks_free_of_server ON task_rows (server, tool, created) WHERE phase = 'ready' AND lease = 0;

DROP INDEX tasks_of_principal;

CREATE INDEX tasks_of_principal_on_server ON task_rows (principal, server, created);

CREATE INDEX tasks_overdue_of_server ON task_rows (server, expires) WHERE phase <> 'ended' AND expires IS NOT NULL;

CREATE VIEW tasks AS
SELECT
    key, id, principal, tool, phase, version, created, updated, expires, token, worker, lease, format, head
FROM task_rows;

CREATE TRIGGER tasks_insert INSTEAD OF INSERT ON tasks BEGIN
    INSERT INTO task_rows (
        key, id, principal, tool, phase, version, created, updated, expires, token, worker, lease, format, head
    ) VALUES (
        NEW.key, NEW.id, NEW.principal, NEW.tool, NEW.phase, NEW.version, NEW.created, NEW.updated, NEW.expires,
        NEW.token, NEW.worker, NEW.lease, NEW.format, NEW.head
    );
END;

CREATE TRIGGER tasks_update INSTEAD OF UPDATE ON tasks BEGIN
    UPDATE task_rows SET
        phase = NEW.phase, version = NEW.version, updated = NEW.updated, expires = NEW.expires, token = NEW.token,
        worker = NEW.worker, lease = NEW.lease, format = NEW.format, head = NEW.head
    WHERE key = OLD.key;
END;

CREATE TRIGGER tasks_delete INSTEAD OF DELETE ON tasks BEGIN
    DELETE FROM task_rows WHERE key = OLD.key;
END;
