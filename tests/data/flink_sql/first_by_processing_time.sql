SET 'table.exec.state.ttl' = '1 h';

CREATE TABLE Orders (
  event_id STRING,
  shop STRING,
  amount BIGINT,
  ts TIMESTAMP(3),
  proc AS PROCTIME(),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH (
  'connector' = 'kafka',
  'topic' = 'orders',
  'properties.bootstrap.servers' = 'kafka:9092',
  'scan.startup.mode' = 'earliest-offset',
  'format' = 'json'
);

SELECT TUMBLE_START(ts, INTERVAL '1' HOUR) AS window_start, shop, COUNT(*) AS orders
FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY shop, event_id ORDER BY proc) AS nth FROM Orders)
WHERE nth = 1
GROUP BY TUMBLE(ts, INTERVAL '1' HOUR), shop;
