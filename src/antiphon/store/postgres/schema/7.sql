-- The turn of each queued task, by which workers claim tasks, so that one principal's long queue does not delay the tasks
-- of the others. NULL stands for the creation time: processes of the version before do not know the column, and a task
-- that a worker holds from the start has no turn.
ALTER TABLE tasks ADD COLUMN turn bigint;

-- Indexes by turn replace the ones by creation time. Processes of the version before find the same tasks without them,
-- only slower.
DROP INDEX tasks_free;

CREATE INDEX tasks_free_by_turn ON tasks (coalesce(turn, created), key) WHERE phase = 'ready' AND lease = 0;

DROP INDEX tasks_free_of_server;

CREATE INDEX tasks_free_of_server_by_turn ON tasks (server, tool, coalesce(turn, created), key)
WHERE phase = 'ready' AND lease = 0;

-- The tasks that have a turn and wait, for the last turn of a principal. No other index can replace this one (see
-- schema/5.sql).
CREATE INDEX tasks_queued ON tasks (
    (CASE WHEN phase = 'ready' AND lease = 0 AND turn IS NOT NULL THEN principal END), server, turn
) WHERE CASE WHEN phase = 'ready' AND lease = 0 AND turn IS NOT NULL THEN principal END IS NOT NULL;

-- The largest turn that a worker has claimed on each server, about: workers write it about once a second.
CREATE TABLE turns (
    server text COLLATE "C" PRIMARY KEY,
    turn bigint NOT NULL
) WITH (fillfactor = 20);
