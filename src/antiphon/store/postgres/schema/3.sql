-- A lower limit for the search for claimable tasks. A claimed task leaves a dead entry in the indexes of claimable
-- tasks, and no vacuum removes it while an older transaction is open, such as the one of pg_dump. So that a claim does
-- not read all dead entries again, it asks for the tasks that became claimable since the last claim.

-- `freed` is the transaction that made the task claimable. A transaction that is still open has a larger number than
-- all transactions before the oldest open one, so the number is a safe limit.
ALTER TABLE tasks ADD COLUMN freed bigint NOT NULL DEFAULT 0;

-- A trigger, because processes of the version before do not know the column.
CREATE FUNCTION set_freed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.freed := pg_current_xact_id()::text::bigint;
    RETURN NEW;
END
$$;

CREATE TRIGGER tasks_set_freed BEFORE INSERT OR UPDATE ON tasks
FOR EACH ROW WHEN (NEW.phase = 'ready' AND NEW.lease = 0) EXECUTE FUNCTION set_freed();

CREATE INDEX tasks_freed ON tasks (freed) WHERE phase = 'ready' AND lease = 0;

-- The tasks that have not ended and have a time to end. Expired tasks that wait for their deletion are not in it.
CREATE INDEX tasks_overdue ON tasks (expires, key) WHERE phase <> 'ended' AND expires IS NOT NULL;
