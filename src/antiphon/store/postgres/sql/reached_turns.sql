-- Gets the turns behind which new tasks are queued (see rules.next_turn), for the servers $1 and principals $2: that of
-- the principal's last queued task, or the largest turn that was claimed on the server. $3 is the largest turn that this
-- process has claimed. Only tasks behind it are looked at, because the entries of tasks before it may be dead.
-- The CASE is the key of the index `tasks_queued` (see schema/6.sql).
SELECT greatest(reached.turn, (
    SELECT tasks.turn FROM tasks
    WHERE CASE WHEN phase = 'ready' AND lease = 0 AND tasks.turn IS NOT NULL THEN principal END = reached.principal
        AND tasks.server = reached.server AND tasks.turn > reached.turn
    ORDER BY tasks.turn DESC LIMIT 1
))
FROM (
    SELECT server, principal, place, greatest(claimed, (
        SELECT turn FROM turns WHERE turns.server = queue.server
    )) AS turn
    FROM unnest($1::text[], $2::text[], $3::bigint[]) WITH ORDINALITY AS queue (server, principal, claimed, place)
) AS reached ORDER BY place
