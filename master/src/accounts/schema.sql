-- Dates are seconds since 1970, spans end with _s and are seconds, sizes are bytes.

-- One row for each job that has ended.
CREATE TABLE jobs (
    cluster     TEXT    NOT NULL, -- the name of the cluster's directories
    job         INTEGER NOT NULL, -- its number in the cluster
    name        TEXT    NOT NULL,
    uid         INTEGER,          -- of its user
    user        TEXT,             -- the name of that user, where this machine knew it
    node_group  TEXT,             -- where the cluster is divided
    queue       TEXT,
    ranks       INTEGER NOT NULL,
    nodes       INTEGER NOT NULL, -- that it has used
    submitted   REAL,
    began       REAL,             -- when it ran first
    ended       REAL,
    state       TEXT    NOT NULL, -- done, failed, cancelled, timed-out, interrupted
    exit_code   INTEGER,          -- the largest of its ranks
    signal      INTEGER,          -- that killed a rank
    reason      TEXT,             -- why coswitch ended it, or could not run it
    in_memory_s REAL    NOT NULL, -- with processes in memory, on all of its nodes at once
    running_s   REAL    NOT NULL, -- with ranks that compute
    processor_s REAL,             -- of all ranks, as their control groups have counted
    memory_peak INTEGER NOT NULL, -- the sum of the peaks on its nodes, as sampled, file caches included
    bytes_out   INTEGER NOT NULL, -- written by dumps
    bytes_in    INTEGER NOT NULL, -- read by restores
    switches    INTEGER NOT NULL, -- that have stopped it
    restores    INTEGER NOT NULL, -- from a snapshot
    repeated_s  REAL    NOT NULL, -- computed again, after the loss of a node
    PRIMARY KEY (cluster, job)
) STRICT, WITHOUT ROWID;

CREATE INDEX jobs_by_end ON jobs (ended);

-- One row for each node that a job has used.
CREATE TABLE uses (
    cluster     TEXT    NOT NULL,
    job         INTEGER NOT NULL,
    node        INTEGER NOT NULL, -- its number in the cluster
    ranks       INTEGER NOT NULL, -- the most at once
    memory_peak INTEGER NOT NULL,
    bytes_out   INTEGER NOT NULL,
    bytes_in    INTEGER NOT NULL,
    processor_s REAL,
    PRIMARY KEY (cluster, job, node)
) STRICT, WITHOUT ROWID;
