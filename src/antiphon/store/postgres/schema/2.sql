-- What processes say to each other. A message is there for a minute; who was told of it reads it by its number.
CREATE TABLE messages (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    origin text COLLATE "C" NOT NULL,
    at timestamptz NOT NULL,
    topic text COLLATE "C" NOT NULL,
    data text NOT NULL
);
