-- Gets the numbers of tasks of the servers $2, NULL for all, by hour, from the hour $1 on.
SELECT hour, server, tool, status, sum(tasks)::bigint AS tasks FROM tallies
WHERE hour >= $1::bigint AND hour <> -1 AND ($2::text[] IS NULL OR server = ANY ($2::text[]))
GROUP BY hour, server, tool, status
