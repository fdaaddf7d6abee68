-- Moves tasks that this process holds behind the other queued tasks of their principals, before they are released. The
-- table `turns` has the largest turns that were claimed. The CASE is the key of the index `tasks_queued`.
UPDATE tasks SET turn = greatest(tasks.created, 3600000 + greatest(
    (SELECT turns.turn FROM turns WHERE turns.server = tasks.server), (
        SELECT queued.turn FROM tasks AS queued
        WHERE CASE WHEN queued.phase = 'ready' AND queued.lease = 0 AND queued.turn IS NOT NULL THEN queued.principal END
            = tasks.principal AND queued.server = tasks.server
        ORDER BY queued.turn DESC LIMIT 1
    )
))
FROM unnest($1::text[], $2::bigint[]) AS held (id, token)
WHERE tasks.id = held.id AND tasks.worker IS NOT NULL AND tasks.token = held.token
