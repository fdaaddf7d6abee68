-- Deletes entries that another process added to a task while expire.sql was deleting the task.
DELETE FROM entries WHERE task = ANY ($1::bigint[])
