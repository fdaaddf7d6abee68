-- Counts the tasks of a principal in a phase, up to a limit.
SELECT count(*) FROM (
    SELECT 1 FROM tasks WHERE principal = $1::text AND phase = $2::text LIMIT $3::bigint
) AS found
