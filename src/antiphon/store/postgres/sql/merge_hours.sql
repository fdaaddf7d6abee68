-- Deletes the numbers of the hours before $2, and adds up the slots of the hours from $1 on and before $3, which have
-- usually ended for all processes. Skips rows that another process is adding up.
WITH old AS (
    DELETE FROM tallies WHERE hour > -1 AND hour < $2::bigint
),
chosen AS MATERIALIZED (
    SELECT hour, server, tool, status, slot FROM tallies
    WHERE hour >= greatest($1::bigint, $2::bigint, 0) AND hour < $3::bigint AND slot > 0
    ORDER BY hour, server, tool, status, slot FOR UPDATE SKIP LOCKED
),
merged AS (
    DELETE FROM tallies AS current USING chosen
    WHERE current.hour = chosen.hour AND current.server = chosen.server AND current.tool = chosen.tool
        AND current.status = chosen.status AND current.slot = chosen.slot
    RETURNING current.hour, current.server, current.tool, current.status, current.tasks
)
INSERT INTO tallies AS current (hour, server, tool, status, slot, tasks)
SELECT hour, server, tool, status, 0, sum(tasks) FROM merged GROUP BY hour, server, tool, status
ORDER BY hour, server, tool, status
ON CONFLICT (hour, server, tool, status, slot) DO UPDATE SET tasks = current.tasks + excluded.tasks
