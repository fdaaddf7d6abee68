-- Gets the versions of watched tasks and whether any task is claimable, in case a notification was lost.
SELECT
    ARRAY(SELECT id || ' ' || version || ' ' || updated FROM tasks WHERE id = ANY ($1::text[])) AS places,
    EXISTS (SELECT FROM tasks WHERE phase = 'ready' AND lease = 0) AS ready
