-- Lists the records of tasks in the phase $8, which have not ended, after a position: of the tool $7, or if that is NULL of
-- all tools that have such tasks, found with one lookup in the index for each. The tasks that workers hold are few, and
-- have an index of their own.
-- If each of several tools has its share of the limit, then no task of the list is older than the oldest one of all shares.
-- So a list of all tools reads about as many rows as a list of one.
-- $1 and $2 are the position, and $3 is the limit. $4 is the time, which does not matter here. The others leave tasks
-- out: $5 principal, $6 servers, $7 tool, $8 phase, $9 outcome, each NULL for all, and $10 the last creation time.
WITH RECURSIVE named (tool) AS (
    SELECT min(tool) FROM tasks
    WHERE CASE WHEN phase <> 'ended' AND lease = 0 THEN phase END = $8::text AND $7::text IS NULL
    UNION ALL
    SELECT (
        SELECT min(tool) FROM tasks
        WHERE CASE WHEN phase <> 'ended' AND lease = 0 THEN phase END = $8::text AND tool > named.tool
    ) FROM named WHERE tool IS NOT NULL
),
wanted (tool) AS (
    SELECT tool FROM named WHERE tool IS NOT NULL UNION ALL SELECT $7::text WHERE $7::text IS NOT NULL AND ($4::bigint IS NULL OR true)
),
shares (tasks) AS (
    SELECT ceil($3::numeric / count(*)) FROM wanted HAVING count(*) > 1
),
bound (created) AS MATERIALIZED (
    SELECT CASE WHEN count(place.created) = count(*) THEN min(place.created) END
    FROM shares CROSS JOIN wanted LEFT JOIN LATERAL (
        SELECT created FROM tasks
        WHERE CASE WHEN phase <> 'ended' AND lease = 0 THEN phase END = $8::text AND tool = wanted.tool
            AND (created, key) < ($1::bigint, $2::bigint) AND created >= $10::bigint
            AND ($6::text[] IS NULL OR server = ANY ($6::text[])) AND ($5::text IS NULL OR principal = $5::text)
            AND $9::text IS NULL
        ORDER BY created DESC, key DESC OFFSET shares.tasks - 1 LIMIT 1
    ) AS place ON true
)
SELECT found.* FROM (
    (
        SELECT of_tool.* FROM wanted CROSS JOIN LATERAL (
            SELECT key, id, principal, tool, phase, version, created, updated, expires, format, head, server, wakes, tags, sharer
            FROM tasks WHERE CASE WHEN phase <> 'ended' AND lease = 0 THEN phase END = $8::text AND tool = wanted.tool
                AND (created, key) < ($1::bigint, $2::bigint) AND created >= $10::bigint
                AND created >= coalesce((SELECT bound.created FROM bound), $10::bigint)
                AND ($6::text[] IS NULL OR server = ANY ($6::text[])) AND ($5::text IS NULL OR principal = $5::text)
                AND $9::text IS NULL
            ORDER BY created DESC, key DESC LIMIT $3::bigint
        ) AS of_tool
    )
    UNION ALL
    (
        SELECT key, id, principal, tool, phase, version, created, updated, expires, format, head, server, wakes, tags, sharer
        FROM tasks WHERE lease > 0 AND phase = $8::text
            AND (created, key) < ($1::bigint, $2::bigint) AND created >= $10::bigint
            AND ($6::text[] IS NULL OR server = ANY ($6::text[])) AND ($5::text IS NULL OR principal = $5::text)
            AND ($7::text IS NULL OR tool = $7::text) AND $9::text IS NULL
        ORDER BY created DESC, key DESC LIMIT $3::bigint
    )
) AS found ORDER BY found.created DESC, found.key DESC LIMIT $3::bigint
