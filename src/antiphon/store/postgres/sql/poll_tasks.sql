-- Gets the versions of watched tasks and whether a task became claimable since a transaction, in case a notification
-- was lost. `settled` is the transaction for the next poll. `latest` changes whenever a transaction writes anything, so a
-- change of any task since the last poll is never missed.
SELECT
    ARRAY(SELECT id || ' ' || version || ' ' || updated FROM tasks WHERE id = ANY ($1::text[])) AS places,
    (
        SELECT freed FROM tasks WHERE CASE WHEN phase = 'ready' AND lease = 0 THEN freed END >= $2::bigint
        ORDER BY CASE WHEN phase = 'ready' AND lease = 0 THEN freed END LIMIT 1
    ) IS NOT NULL AS ready,
    pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS settled,
    pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS latest
