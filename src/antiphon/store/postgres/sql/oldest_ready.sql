-- Gets the time of the last change of the next task to be claimed.
SELECT updated FROM tasks WHERE phase = 'ready' AND lease = 0 ORDER BY coalesce(turn, created), key LIMIT 1
