-- The turn of each queued task, by which workers claim tasks, so that one principal's long queue does not delay the tasks
-- of the others. NULL stands for the creation time: earlier versions do not know the column, and a task that a worker
-- holds from the start has no turn.
ALTER TABLE task_rows ADD COLUMN turn INTEGER;

-- An index by turn replaces the one by creation time. Earlier versions find the same tasks without it, only slower.
DROP INDEX tasks_free_of_server;

CREATE INDEX tasks_free_by_turn ON task_rows (server, tool, coalesce(turn, created))
WHERE phase = 'ready' AND lease = 0;

-- The tasks that have a turn and wait, for the last turn of a principal.
CREATE INDEX tasks_queued ON task_rows (principal, server, turn)
WHERE phase = 'ready' AND lease = 0 AND turn IS NOT NULL;

-- The largest turn that a worker has claimed on each server.
CREATE TABLE turns (
    server TEXT PRIMARY KEY,
    turn INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
