-- How far watched tasks have come, and whether any task waits for a worker: in case a notice was lost.
SELECT
    ARRAY(SELECT id || ' ' || version || ' ' || updated FROM tasks WHERE id = ANY ($1::text[])) AS places,
    EXISTS (SELECT FROM tasks WHERE phase = 'ready' AND lease = 0) AS ready
