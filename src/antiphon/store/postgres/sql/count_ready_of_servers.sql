-- Counts the ready tasks of some servers, by the index of claimable tasks and the index of leases.
SELECT
    (SELECT count(*) FROM tasks WHERE phase = 'ready' AND lease = 0 AND server = ANY ($1::text[]))
    + (SELECT count(*) FROM tasks WHERE lease > 0 AND phase || '' = 'ready' AND server = ANY ($1::text[]))
