-- Adds up the slots of each sharer. Skips rows that another process is adding up.
WITH chosen AS MATERIALIZED (
    SELECT server, sharer, slot FROM usages WHERE slot > 0 ORDER BY server, sharer, slot FOR UPDATE SKIP LOCKED
),
merged AS (
    DELETE FROM usages AS current USING chosen
    WHERE current.server = chosen.server AND current.sharer = chosen.sharer AND current.slot = chosen.slot
    RETURNING current.server, current.sharer, current.bytes
)
INSERT INTO usages AS current (server, sharer, slot, bytes)
SELECT server, sharer, 0, sum(bytes) FROM merged GROUP BY server, sharer ORDER BY server, sharer
ON CONFLICT (server, sharer, slot) DO UPDATE SET bytes = current.bytes + excluded.bytes
