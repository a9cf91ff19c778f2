-- timer-start: 2026-01-01T00:00:00Z
SET 'table.exec.source.idle-timeout' = '30 s';

CREATE TABLE Orders (
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

CREATE TABLE `Returns` (
  ts BIGINT,
  store STRING,
  refund BIGINT,
  is_test BOOLEAN,
  at_ AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR at_ AS at_ - INTERVAL '1' MINUTE
) WITH (
  'connector' = 'kafka',
  'topic' = 'returns',
  'properties.bootstrap.servers' = 'kafka:9092',
  'scan.startup.mode' = 'earliest-offset',
  'format' = 'json'
);

CREATE VIEW Gifts AS SELECT shop, CAST(0 AS BIGINT) AS amount, ts FROM Orders WHERE amount = 0;

CREATE VIEW Changes AS
SELECT shop, amount, ts FROM Orders WHERE amount > 0
UNION ALL
SELECT UPPER(store), -refund, at_ FROM `Returns` WHERE NOT is_test
UNION ALL
SELECT * FROM Gifts;

INSERT INTO totals
SELECT window_start, window_end, LOWER(shop) AS shop, SUM(amount) AS total, COUNT(*) AS changes
FROM TABLE(TUMBLE(TABLE Changes, DESCRIPTOR(ts), INTERVAL '10' MINUTES))
WHERE shop <> 'test'
GROUP BY window_start, window_end, LOWER(shop);
