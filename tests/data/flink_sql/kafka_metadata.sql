CREATE TABLE logins (
  log_time TIMESTAMP_LTZ(3) METADATA FROM 'timestamp' VIRTUAL,
  part INT METADATA FROM 'partition' VIRTUAL,
  account STRING,
  WATERMARK FOR log_time AS log_time - INTERVAL '0.001' SECOND
) WITH ('connector' = 'kafka', 'topic' = 'logins', 'properties.bootstrap.servers' = 'kafka:9092',
  'scan.startup.mode' = 'earliest-offset', 'format' = 'json');

SELECT window_start, window_end, part, COUNT(account) AS logins
FROM TABLE(TUMBLE(TABLE logins, DESCRIPTOR(log_time), INTERVAL '1' MINUTE))
GROUP BY window_start, window_end, part;
