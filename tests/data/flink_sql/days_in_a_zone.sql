SET 'table.local-time-zone' = 'Europe/Berlin';
CREATE TABLE sales (
  shop STRING,
  amount DECIMAL(12, 2),
  sold_at TIMESTAMP_LTZ(3),
  WATERMARK FOR sold_at AS sold_at - INTERVAL '1' HOUR
) WITH ('connector' = 'kafka', 'topic' = 'sales', 'properties.bootstrap.servers' = 'kafka:9092',
  'scan.startup.mode' = 'earliest-offset', 'format' = 'json', 'json.timestamp-format.standard' = 'ISO-8601');

INSERT INTO sales_per_day
SELECT window_start, window_end, shop, SUM(amount) AS amount
FROM TABLE(TUMBLE(TABLE sales, DESCRIPTOR(sold_at), INTERVAL '1' DAY))
GROUP BY window_start, window_end, shop;
