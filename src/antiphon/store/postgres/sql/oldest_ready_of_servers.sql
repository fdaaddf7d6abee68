-- Gets the time of the last change of the next task of some servers to be claimed. Finds their tools with one lookup
-- in the index for each.
WITH RECURSIVE queues (server, tool) AS (
    SELECT wanted.server, (
        SELECT min(tool) FROM tasks WHERE phase = 'ready' AND lease = 0 AND server = wanted.server
    ) FROM unnest($1::text[]) AS wanted (server)
    UNION ALL
    SELECT queues.server, (
        SELECT min(tool) FROM tasks
        WHERE phase = 'ready' AND lease = 0 AND server = queues.server AND tool > queues.tool
    ) FROM queues WHERE tool IS NOT NULL
)
SELECT first.updated FROM queues CROSS JOIN LATERAL (
    SELECT updated, coalesce(turn, created) AS turn, key FROM tasks
    WHERE phase = 'ready' AND lease = 0 AND server = queues.server AND tool = queues.tool
    ORDER BY coalesce(turn, created), key LIMIT 1
) AS first ORDER BY first.turn, first.key LIMIT 1
