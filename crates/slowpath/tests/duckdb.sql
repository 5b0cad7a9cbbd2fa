-- Questions that users ask of a log, for DuckDB. 'log' is the log's directory.
-- `date`, `hour` and `host` are columns too: the partition of each row's file.
-- A test (duckdb.rs) runs each and compares with `slowpath report`.

-- question: time of each problem by peer
SELECT c.remote_address, p.problem, sum(p.time_us) AS time_us
FROM 'log/*/*/*/problems-*.parquet' p
JOIN 'log/*/*/*/connections-*.parquet' c USING (segment, connection_id)
GROUP BY ALL
ORDER BY time_us DESC;

-- question: losses by hour
SELECT strftime(date_trunc('hour', end_time), '%Y-%m-%dT%H:00:00Z') AS began, sum(events) AS losses
FROM 'log/*/*/*/problems-*.parquet'
WHERE problem IN ('FastRetransmit', 'Timeout')
GROUP BY began
ORDER BY began;

-- question: connections whose owner is unknown, by reason
SELECT owner_unknown, count(DISTINCT connection_id) AS connections
FROM 'log/*/*/*/connections-*.parquet'
WHERE pid IS NULL
GROUP BY owner_unknown
ORDER BY connections DESC;

-- question: connections of each application
SELECT coalesce(application, command) AS name, count(DISTINCT connection_id) AS connections
FROM 'log/*/*/*/connections-*.parquet'
WHERE name IS NOT NULL
GROUP BY name
ORDER BY connections DESC;

-- question: what slowed each connection
SELECT c.local_address || ':' || c.local_port AS local,
       c.remote_address || ':' || c.remote_port AS remote,
       p.problem, sum(p.time_us) AS time_us, coalesce(sum(p.events), 0) AS events
FROM 'log/*/*/*/problems-*.parquet' p
JOIN 'log/*/*/*/connections-*.parquet' c USING (segment, connection_id)
GROUP BY ALL
ORDER BY time_us DESC;

-- question: share of connections with delayed ACKs
WITH latest AS (
  SELECT * FROM 'log/*/*/*/connections-*.parquet'
  QUALIFY row_number() OVER (PARTITION BY connection_id
                             ORDER BY closed DESC, polls DESC, last_observed DESC) = 1)
SELECT 100.0 * count(*) FILTER (delayed_ack_time_us > 0) / count(delayed_ack_time_us) AS percent,
       count(*) - count(delayed_ack_time_us) AS not_measured
FROM latest;

-- question: bytes of each application
WITH latest AS (
  SELECT * FROM 'log/*/*/*/connections-*.parquet'
  QUALIFY row_number() OVER (PARTITION BY connection_id
                             ORDER BY closed DESC, polls DESC, last_observed DESC) = 1)
SELECT coalesce(application, command, '(owner unknown)') AS name,
       sum(bytes_acked + bytes_received) AS bytes
FROM latest
GROUP BY name
ORDER BY bytes DESC;

-- question: what the agent observed
SELECT sum(polls) AS polls, sum(duration_us) AS time_us, max(sockets) AS sockets, sum(missed) AS missed
FROM 'log/*/*/*/coverage-*.parquet';

-- question: what could not be measured
SELECT DISTINCT unnest(unmeasured) AS problem
FROM 'log/*/*/*/coverage-*.parquet'
ORDER BY problem;

-- question: listeners that turned connections away
WITH rounds AS (
  SELECT *, unnest(problems) AS problem FROM 'log/*/*/*/listeners-*.parquet')
SELECT local_address || ':' || local_port AS local, problem, count(*) AS rounds,
       sum(duration_us) AS time_us,
       coalesce(sum(CASE problem WHEN 'AcceptQueueOverflow' THEN accept_queue_overflow_events
                                 ELSE syn_queue_overflow_events END), 0) AS events
FROM rounds
GROUP BY ALL
ORDER BY local;

-- question: problems that explain each other
SELECT interaction, local_address || ':' || local_port AS local,
       remote_address || ':' || remote_port AS remote,
       sum(duration_us) AS time_us, sum(rounds) AS rounds
FROM 'log/*/*/*/interactions-*.parquet'
GROUP BY ALL
ORDER BY time_us DESC;

-- question: time observed at each address of this host
WITH latest AS (
  SELECT * FROM 'log/*/*/*/connections-*.parquet'
  QUALIFY row_number() OVER (PARTITION BY connection_id
                             ORDER BY closed DESC, polls DESC, last_observed DESC) = 1)
SELECT local_address, count(*) AS connections, sum(observed_us) AS observed_us
FROM latest
GROUP BY local_address
ORDER BY local_address;

-- question: segments and retransmissions by hour
SELECT strftime(date_trunc('hour', end_time), '%Y-%m-%dT%H:00:00Z') AS began,
       sum(data_segments_out)::BIGINT AS sent, sum(retransmitted)::BIGINT AS retransmitted
FROM 'log/*/*/*/traffic-*.parquet'
GROUP BY began
ORDER BY began;

-- question: clocks
SELECT clock_state, clock_synchronised, max(clock_max_error_us) AS max_error_us
FROM 'log/*/*/*/coverage-*.parquet'
GROUP BY ALL
ORDER BY ALL;
