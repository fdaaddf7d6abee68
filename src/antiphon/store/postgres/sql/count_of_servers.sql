-- Counts the tasks of some servers in a phase, one by one.
SELECT count(*) FROM tasks WHERE phase = $1::text AND server = ANY ($2::text[])
