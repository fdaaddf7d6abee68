-- Gets the numbers of tasks of the servers $1, NULL for all, and in rows of their own those of up to $3 tasks that have
-- expired: lists leave these tasks out, and usually they are deleted soon. $2 is the time, NULL for the clock of this
-- database. The time is computed once, so that an index finds the expired tasks.
WITH moment AS MATERIALIZED (
    SELECT coalesce($2::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
),
expired AS MATERIALIZED (
    SELECT server, tool, phase, outcome FROM tasks
    WHERE phase = 'ended' AND expires <= (SELECT now FROM moment)
        AND ($1::text[] IS NULL OR server = ANY ($1::text[]))
    ORDER BY expires, key LIMIT $3::bigint
)
SELECT false AS is_expired, server, tool, status, sum(tasks)::bigint AS tasks FROM tallies
WHERE hour = -1 AND ($1::text[] IS NULL OR server = ANY ($1::text[]))
GROUP BY server, tool, status
UNION ALL
SELECT true, server, tool, status_of(phase, outcome), count(*) FROM expired
GROUP BY server, tool, status_of(phase, outcome)
