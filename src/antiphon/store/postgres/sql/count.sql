-- Counts the tasks in a phase.
SELECT coalesce(sum(tasks), 0)::bigint FROM counts WHERE phase = $1::text
