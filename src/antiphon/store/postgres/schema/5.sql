-- The tasks that became claimable since a transaction, in an index that no other index of claimable tasks can replace.
-- With the same condition on all of them, PostgreSQL chose among them by its statistics. They do not count dead
-- entries, so it sometimes chose an index that has to be read from its first dead entry on.
DROP INDEX tasks_freed;

CREATE INDEX tasks_arrived ON tasks ((CASE WHEN phase = 'ready' AND lease = 0 THEN freed END))
WHERE CASE WHEN phase = 'ready' AND lease = 0 THEN freed END IS NOT NULL;
