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

CREATE VIEW once AS
SELECT event_id, shop, amount, ts FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY event_id ORDER BY ts) AS nth FROM Orders
) WHERE nth = 1;

SELECT window_start, window_end, shop, SUM(amount) AS amount
FROM TABLE(TUMBLE(TABLE once, DESCRIPTOR(ts), INTERVAL '10' MINUTES))
WHERE amount > 0
GROUP BY window_start, window_end, shop;
