-- Gets the time of the last change of the next task to be claimed.
SELECT updated FROM tasks WHERE phase = 'ready' AND lease = 0 AND (
    expires IS NULL
    OR expires > coalesce($1::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
)
ORDER BY created, key LIMIT 1
