-- Finds out whether wake.sql would find a task of the servers $2 whose time came after $3. Takes a seventh of its time,
-- and most searches find no task. The row has the columns of a search that found and skipped no task.
WITH moment AS MATERIALIZED (
    SELECT coalesce($1::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
)
SELECT moment.now, NULL AS id, NULL AS skipped, EXISTS (
    SELECT FROM unnest($2::text[]) AS wanted (server) CROSS JOIN LATERAL (
        SELECT FROM tasks
        WHERE server = wanted.server AND wakes IS NOT NULL AND wakes <= moment.now
            AND wakes > least($3::bigint, moment.now - 15000)
        ORDER BY wakes, key LIMIT 1
    ) AS found
) AS is_due
FROM moment
