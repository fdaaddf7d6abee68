-- Lists of the tasks of one tool, phase or outcome. Each index slows writing down, so there are three, and one of them
-- replaces another: the list of all tasks merges the tasks of all tools, of which there are few.
DROP INDEX tasks_by_age;

-- Indexes on expressions, which only these lists contain: PostgreSQL must not choose one of them for a claim.
CREATE INDEX tasks_of_tool ON tasks ((tool || ''), created, key);

-- The tasks that wait for a worker or for an answer. A task that a worker holds from its creation to its end is never
-- in this index; `tasks_leased` has the tasks that workers hold.
CREATE INDEX tasks_unfinished ON tasks (
    (CASE WHEN phase <> 'ended' AND lease = 0 THEN phase END), created, key
) WHERE CASE WHEN phase <> 'ended' AND lease = 0 THEN phase END IS NOT NULL;

-- The outcome of an ended task: 'failed', 'cancelled', '' if its head does not say it, and NULL if it is done. Most
-- tasks are done, so they cost nothing here.
ALTER TABLE tasks ADD COLUMN outcome text COLLATE "C";

-- PostgreSQL cannot read the character 0 in JSON, so another one takes its place. A damaged head has no outcome.
CREATE FUNCTION outcome_of(head text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    read json;
BEGIN
    read := replace(head, '\u0000', '\u0001');
    RETURN CASE read ->> 'state'
        WHEN 'faulted' THEN 'failed'
        WHEN 'cancelled' THEN 'cancelled'
        WHEN 'done' THEN CASE WHEN read -> 'result' ->> 'is_error' = 'true' THEN 'failed' ELSE 'done' END
        ELSE ''
    END;
EXCEPTION WHEN data_exception THEN
    RETURN '';
END
$$;

-- A trigger, because processes of the version before do not know the column. An index on an expression of the head
-- would keep PostgreSQL from updating a task within its page.
CREATE FUNCTION set_outcome() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.outcome := nullif(outcome_of(NEW.head), 'done');
    RETURN NEW;
END
$$;

-- The condition is also true for some tasks that are done, and false for no others.
CREATE TRIGGER tasks_set_outcome BEFORE INSERT OR UPDATE ON tasks
FOR EACH ROW WHEN (
    NEW.phase = 'ended' AND (
        NEW.outcome IS NOT NULL OR strpos(NEW.head, '"state":"done"') = 0 OR strpos(NEW.head, '"is_error":true') > 0
        OR strpos(NEW.head, '"state":"faulted"') > 0 OR strpos(NEW.head, '"state":"cancelled"') > 0
    )
) EXECUTE FUNCTION set_outcome();

-- The trigger computes the outcomes of the tasks that have ended before.
UPDATE tasks SET outcome = '' WHERE phase = 'ended' AND (
    strpos(head, '"state":"done"') = 0 OR strpos(head, '"is_error":true') > 0
    OR strpos(head, '"state":"faulted"') > 0 OR strpos(head, '"state":"cancelled"') > 0
);

CREATE INDEX tasks_ended ON tasks (coalesce(outcome, ''), created, key) WHERE phase = 'ended';
