-- Counts the tasks of a principal, up to a limit.
SELECT count(*) FROM (SELECT 1 FROM tasks WHERE principal = $1::text LIMIT $2::bigint) AS found
