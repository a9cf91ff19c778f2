CREATE TABLE clicks (
  user_id STRING,
  url STRING,
  ts_ms BIGINT,
  host AS SUBSTRING(url, 9, 20),
  event_time AS TO_TIMESTAMP_LTZ(ts_ms, 3),
  WATERMARK FOR event_time AS event_time - INTERVAL '30' SECOND
) WITH ('connector' = 'kafka', 'topic' = 'clicks', 'properties.bootstrap.servers' = 'kafka:9092',
  'scan.startup.mode' = 'timestamp', 'scan.startup.timestamp-millis' = '1709294400000',
  'value.format' = 'json', 'value.json.ignore-parse-errors' = 'true');

INSERT INTO clicks_per_host
SELECT window_start, window_end, host, COUNT(*) AS clicks, MAX(event_time) AS newest
FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(event_time), INTERVAL '15' SECOND))
GROUP BY window_start, window_end, host;
