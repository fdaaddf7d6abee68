-- The tasks of one tool that have not ended, in place of those of all tools. Earlier versions find the same tasks with it.
DROP INDEX tasks_unfinished;

CREATE INDEX tasks_unfinished ON tasks (
    (CASE WHEN phase <> 'ended' AND lease = 0 THEN phase END), tool, created, key
) WHERE CASE WHEN phase <> 'ended' AND lease = 0 THEN phase END IS NOT NULL;

-- The number of tasks of each server, tool and status: in all if `hour` is -1, and otherwise those that were created, or
-- ended with the status, in the hour that began at `hour`, in milliseconds. The status is the phase of a task that has not
-- ended, and the outcome of one that has; 'ended' if its head does not say the outcome. The numbers of an hour stay when
-- tasks are deleted. Old hours are deleted. Each connection changes rows of its own, in a slot, so that no process waits
-- for another: the rows of all slots have to be added up.
CREATE TABLE tallies (
    hour bigint NOT NULL,
    server text COLLATE "C" NOT NULL,
    tool text COLLATE "C" NOT NULL,
    status text COLLATE "C" NOT NULL,
    slot integer NOT NULL,
    tasks bigint NOT NULL,
    PRIMARY KEY (hour, server, tool, status, slot)
) WITH (fillfactor = 20);

CREATE FUNCTION status_of(phase text, outcome text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN phase <> 'ended' THEN phase WHEN outcome IS NULL THEN 'done' WHEN outcome = '' THEN 'ended' ELSE outcome END
$$;

-- The slot of this connection. Another one after some transactions: while another transaction is open for long, each
-- change of a row makes the next one slower. All connections change their slots together, so that they stay apart.
CREATE FUNCTION tally_slot() RETURNS integer LANGUAGE sql STABLE AS $$
    SELECT ((pg_backend_pid() + pg_current_xact_id()::text::bigint / 256) % 61)::integer
$$;

INSERT INTO tallies
SELECT -1, server, tool, status_of(phase, outcome) AS status, 0, count(*) FROM tasks GROUP BY server, tool, status;

INSERT INTO tallies
SELECT created / 3600000 * 3600000 AS hour, server, tool, 'created', 0, count(*) FROM tasks GROUP BY hour, server, tool;

INSERT INTO tallies
SELECT updated / 3600000 * 3600000 AS hour, server, tool, status_of(phase, outcome) AS status, 0, count(*)
FROM tasks WHERE phase = 'ended' GROUP BY hour, server, tool, status;

-- Triggers count, because processes of the version before do not know the table. They run once for each statement, and
-- their queries have no parameters, so that PostgreSQL plans them once for each connection.
CREATE FUNCTION tally_inserted() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF EXISTS (SELECT FROM inserted) THEN
        INSERT INTO tallies AS current (hour, server, tool, status, slot, tasks)
        SELECT hour, server, tool, status, tally_slot(), count(*) FROM (
            SELECT -1 AS hour, server, tool, status_of(phase, outcome) AS status FROM inserted
            UNION ALL
            SELECT created / 3600000 * 3600000, server, tool, 'created' FROM inserted
            UNION ALL
            SELECT updated / 3600000 * 3600000, server, tool, status_of(phase, outcome) FROM inserted WHERE phase = 'ended'
        ) AS counted GROUP BY hour, server, tool, status ORDER BY hour, server, tool, status
        ON CONFLICT (hour, server, tool, status, slot) DO UPDATE SET tasks = current.tasks + excluded.tasks;
    END IF;
    RETURN NULL;
END
$$;

-- A worker's claim changes no status, so that all sums are 0 then.
CREATE FUNCTION tally_changed() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF EXISTS (SELECT FROM after_change) THEN
        INSERT INTO tallies AS current (hour, server, tool, status, slot, tasks)
        SELECT hour, server, tool, status, tally_slot(), sum(change) FROM (
            SELECT -1 AS hour, server, tool, status_of(phase, outcome) AS status, 1 AS change FROM after_change
            UNION ALL
            SELECT -1, server, tool, status_of(phase, outcome), -1 FROM before_change
            UNION ALL
            SELECT updated / 3600000 * 3600000, server, tool, status_of(phase, outcome), 1 FROM after_change
            WHERE phase = 'ended' AND key NOT IN (SELECT key FROM before_change WHERE phase = 'ended')
        ) AS changes GROUP BY hour, server, tool, status HAVING sum(change) <> 0 ORDER BY hour, server, tool, status
        ON CONFLICT (hour, server, tool, status, slot) DO UPDATE SET tasks = current.tasks + excluded.tasks;
    END IF;
    RETURN NULL;
END
$$;

CREATE FUNCTION tally_deleted() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF EXISTS (SELECT FROM deleted) THEN
        INSERT INTO tallies AS current (hour, server, tool, status, slot, tasks)
        SELECT -1, server, tool, status_of(phase, outcome) AS status, tally_slot(), -count(*)
        FROM deleted GROUP BY server, tool, status ORDER BY server, tool, status
        ON CONFLICT (hour, server, tool, status, slot) DO UPDATE SET tasks = current.tasks + excluded.tasks;
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER tasks_tally_inserted AFTER INSERT ON tasks REFERENCING NEW TABLE AS inserted
FOR EACH STATEMENT EXECUTE FUNCTION tally_inserted();

CREATE TRIGGER tasks_tally_changed AFTER UPDATE ON tasks REFERENCING OLD TABLE AS before_change NEW TABLE AS after_change
FOR EACH STATEMENT EXECUTE FUNCTION tally_changed();

CREATE TRIGGER tasks_tally_deleted AFTER DELETE ON tasks REFERENCING OLD TABLE AS deleted
FOR EACH STATEMENT EXECUTE FUNCTION tally_deleted();
