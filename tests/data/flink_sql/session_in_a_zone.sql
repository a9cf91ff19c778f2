SET 'table.local-time-zone' = 'Europe/Berlin';
SET 'table.exec.emit.early-fire.enabled' = 'true';
CREATE TABLE sales (
  shop STRING,
  amount DECIMAL(12, 2),
  sold_at TIMESTAMP_LTZ(3),
  WATERMARK FOR sold_at AS sold_at - INTERVAL '1' MINUTE
) WITH ('connector' = 'kafka', 'topic' = 'sales', 'properties.bootstrap.servers' = 'kafka:9092',
  'scan.startup.mode' = 'earliest-offset', 'format' = 'json');

INSERT INTO visits
SELECT window_start, window_end, shop, SUM(amount) AS amount
FROM TABLE(SESSION(TABLE sales PARTITION BY shop, DESCRIPTOR(sold_at), INTERVAL '30' MINUTES))
GROUP BY window_start, window_end, shop;
