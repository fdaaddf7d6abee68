-- Gets the number of the last message.
SELECT coalesce(max(number), 0) FROM messages
