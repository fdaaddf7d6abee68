-- Counts the tasks of a sharer that wait in a phase, up to a limit.
SELECT count(*) FROM (
    SELECT 1 FROM tasks
    WHERE CASE WHEN sharer <> '' AND phase <> 'ended' AND lease = 0 THEN sharer END = $1::text AND phase = $2::text
    LIMIT $3::bigint
) AS found
