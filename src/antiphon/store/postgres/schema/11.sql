-- Who shares the store with others for a task, if that is not its principal, and how many bytes the log of the task has.
-- Tasks that were written before have 0 bytes until their log grows.
ALTER TABLE tasks ADD COLUMN sharer text COLLATE "C" NOT NULL DEFAULT '';

ALTER TABLE tasks ADD COLUMN bytes bigint NOT NULL DEFAULT 0;

-- The tasks that wait, of sharers that are no principals. No other tasks are in the index, and no other index can replace
-- it (see schema/5.sql).
CREATE INDEX tasks_of_sharer ON tasks (
    (CASE WHEN sharer <> '' AND phase <> 'ended' AND lease = 0 THEN sharer END), phase
) WHERE CASE WHEN sharer <> '' AND phase <> 'ended' AND lease = 0 THEN sharer END IS NOT NULL;

-- The bytes of all logs on each server, by sharer, and of all sharers together under an empty name. Each connection changes
-- rows of its own, in a slot, as for tallies: the rows of all slots have to be added up.
CREATE TABLE usages (
    server text COLLATE "C" NOT NULL,
    sharer text COLLATE "C" NOT NULL,
    slot integer NOT NULL,
    bytes bigint NOT NULL,
    PRIMARY KEY (server, sharer, slot)
) WITH (fillfactor = 20);

CREATE FUNCTION sharer_of(sharer text, principal text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE sharer WHEN '' THEN principal ELSE sharer END
$$;

-- The functions of schema/10.sql count the bytes too.
CREATE OR REPLACE FUNCTION tally_inserted() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
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
    IF EXISTS (SELECT FROM inserted WHERE bytes > 0) THEN
        INSERT INTO usages AS current (server, sharer, slot, bytes)
        SELECT server, sharer, tally_slot(), sum(bytes) FROM (
            SELECT server, sharer_of(sharer, principal) AS sharer, bytes FROM inserted
            UNION ALL
            SELECT server, '', bytes FROM inserted WHERE sharer_of(sharer, principal) <> ''
        ) AS counted GROUP BY server, sharer ORDER BY server, sharer
        ON CONFLICT (server, sharer, slot) DO UPDATE SET bytes = current.bytes + excluded.bytes;
    END IF;
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION tally_changed() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
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
    IF (SELECT sum(bytes) FROM after_change) <> (SELECT sum(bytes) FROM before_change) THEN
        INSERT INTO usages AS current (server, sharer, slot, bytes)
        SELECT server, sharer, tally_slot(), sum(change) FROM (
            SELECT server, sharer_of(sharer, principal) AS sharer, bytes AS change FROM after_change
            UNION ALL
            SELECT server, sharer_of(sharer, principal), -bytes FROM before_change
            UNION ALL
            SELECT server, '', bytes FROM after_change WHERE sharer_of(sharer, principal) <> ''
            UNION ALL
            SELECT server, '', -bytes FROM before_change WHERE sharer_of(sharer, principal) <> ''
        ) AS changes GROUP BY server, sharer HAVING sum(change) <> 0 ORDER BY server, sharer
        ON CONFLICT (server, sharer, slot) DO UPDATE SET bytes = current.bytes + excluded.bytes;
    END IF;
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION tally_deleted() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF EXISTS (SELECT FROM deleted) THEN
        INSERT INTO tallies AS current (hour, server, tool, status, slot, tasks)
        SELECT -1, server, tool, status_of(phase, outcome) AS status, tally_slot(), -count(*)
        FROM deleted GROUP BY server, tool, status ORDER BY server, tool, status
        ON CONFLICT (hour, server, tool, status, slot) DO UPDATE SET tasks = current.tasks + excluded.tasks;
        INSERT INTO usages AS current (server, sharer, slot, bytes)
        SELECT server, sharer, tally_slot(), -sum(bytes) FROM (
            SELECT server, sharer_of(sharer, principal) AS sharer, bytes FROM deleted
            UNION ALL
            SELECT server, '', bytes FROM deleted WHERE sharer_of(sharer, principal) <> ''
        ) AS counted GROUP BY server, sharer HAVING sum(bytes) <> 0 ORDER BY server, sharer
        ON CONFLICT (server, sharer, slot) DO UPDATE SET bytes = current.bytes + excluded.bytes;
    END IF;
    RETURN NULL;
END
$$;

-- This version adds the bytes of entries to their task itself, and writes them with the format 0, which is JSON text as 1
-- is. For entries of the format 1, which processes of the version before write, a trigger does it. 128 is
-- `rules.ENTRY_BYTES`.
CREATE FUNCTION add_bytes() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE tasks SET bytes = bytes + 128 + octet_length(NEW.kind) + octet_length(NEW.data) WHERE key = NEW.task;
    RETURN NULL;
END
$$;

CREATE TRIGGER entries_add_bytes AFTER INSERT ON entries
FOR EACH ROW WHEN (NEW.format = 1) EXECUTE FUNCTION add_bytes();
