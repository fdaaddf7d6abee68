-- Gets the workers that hold tasks, and when the first of their leases ends. $1 is the time, NULL for the clock of this
-- database.
SELECT worker, server, tool, count(*) AS tasks,
    min(lease) - coalesce($1::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS left
FROM tasks WHERE lease > 0 AND worker IS NOT NULL GROUP BY worker, server, tool ORDER BY worker, server, tool
