-- The clocks by which leases go, one for each start of the machine and each of its time namespaces. A process
-- adds `ahead` to its machine's clock, both in milliseconds, so that all processes agree on when a lease ends.
CREATE TABLE clocks (
    boot TEXT NOT NULL,
    namespace TEXT NOT NULL,
    ahead INTEGER NOT NULL,
    PRIMARY KEY (boot, namespace)
) STRICT, WITHOUT ROWID;
