-- The messages between processes. A message is kept for a minute; a notified process reads it by its number.
CREATE TABLE messages (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    origin text COLLATE "C" NOT NULL,
    at timestamptz NOT NULL,
    topic text COLLATE "C" NOT NULL,
    data text NOT NULL
);
