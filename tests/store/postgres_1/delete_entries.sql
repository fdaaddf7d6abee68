-- Entries that were added to a task while it was being forgotten.
DELETE FROM entries WHERE task = ANY ($1::bigint[])
