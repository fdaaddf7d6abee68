-- Who shares the store with others for a task, if that is not its principal, and how many bytes the log of the task has.
-- Tasks that were written before have 0 bytes until their log grows.
ALTER TABLE task_rows ADD COLUMN sharer TEXT NOT NULL DEFAULT '';

ALTER TABLE task_rows ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;

-- The tasks that wait, of sharers that are no principals. No other tasks are in the index.
CREATE INDEX tasks_of_sharer ON task_rows (sharer, phase) WHERE sharer <> '' AND phase <> 'ended' AND lease = 0;

-- The bytes of all logs on each server, by sharer, and of all sharers together under an empty name. This version counts
-- the changes of a commit together, and writes its entries with the format 0, which is JSON text as 1 is. Processes of
-- earlier versions write the format 1: a trigger counts for them. 128 is `rules.ENTRY_BYTES`.
CREATE TABLE usages (
    server TEXT NOT NULL,
    sharer TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    PRIMARY KEY (server, sharer)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER bytes_inserted AFTER INSERT ON entries WHEN NEW.format = 1 BEGIN
    UPDATE task_rows SET bytes = bytes + 128 + length(CAST(NEW.kind AS BLOB)) + length(CAST(NEW.data AS BLOB))
    WHERE key = NEW.task;
    INSERT INTO usages
    SELECT server, CASE sharer WHEN '' THEN principal ELSE sharer END,
        128 + length(CAST(NEW.kind AS BLOB)) + length(CAST(NEW.data AS BLOB))
    FROM task_rows WHERE key = NEW.task AND (sharer <> '' OR principal <> '')
    ON CONFLICT (server, sharer) DO UPDATE SET bytes = bytes + excluded.bytes;
    INSERT INTO usages
    SELECT server, '', 128 + length(CAST(NEW.kind AS BLOB)) + length(CAST(NEW.data AS BLOB))
    FROM task_rows WHERE key = NEW.task
    ON CONFLICT (server, sharer) DO UPDATE SET bytes = bytes + excluded.bytes;
END;

-- Tasks that are deleted are not many, so this trigger counts for all versions.
CREATE TRIGGER bytes_deleted AFTER DELETE ON task_rows WHEN OLD.bytes > 0 BEGIN
    UPDATE usages SET bytes = bytes - OLD.bytes
    WHERE server = OLD.server AND sharer IN ('', CASE OLD.sharer WHEN '' THEN OLD.principal ELSE OLD.sharer END);
    DELETE FROM usages
    WHERE server = OLD.server AND sharer = CASE OLD.sharer WHEN '' THEN OLD.principal ELSE OLD.sharer END AND bytes <= 0;
END;
