-- Lists the waiting tasks that have one of the tags $4 above a position, oldest first.
SELECT key, id, principal, tool, phase, version, tasks.created, updated, expires, format, head, server, wakes, tags, sharer
FROM (
    SELECT DISTINCT found.created, found.task FROM unnest($4::text[]) AS wanted (tag) CROSS JOIN LATERAL (
        SELECT created, task FROM task_tags WHERE tag = wanted.tag AND (created, task) > ($1::bigint, $2::bigint)
        ORDER BY created, task LIMIT $3::bigint
    ) AS found
    ORDER BY found.created, found.task LIMIT $3::bigint
) AS oldest JOIN tasks ON tasks.key = oldest.task
WHERE phase = 'waiting' ORDER BY tasks.created, tasks.key
