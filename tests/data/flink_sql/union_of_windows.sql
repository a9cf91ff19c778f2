CREATE TABLE orders (
  shop STRING,
  price DECIMAL(10, 2),
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '10' SECOND
) WITH (
  'connector' = 'kafka', 'topic' = 'orders', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json'
);
CREATE TABLE totals (shop STRING, hour_of_day STRING, total DECIMAL(38, 2)) WITH ('connector' = 'print');

INSERT INTO totals
SELECT UPPER(shop) || '!', DATE_FORMAT(window_start, 'yyyy-MM-dd HH'), SUM(price)
FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' HOUR))
GROUP BY shop, window_start, window_end
UNION ALL
SELECT 'all', DATE_FORMAT(window_start, 'yyyy-MM-dd HH'), SUM(price)
FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' HOUR))
GROUP BY window_start, window_end
UNION ALL
SELECT shop, 'often', SUM(price)
FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' DAY))
GROUP BY shop, window_start, window_end
HAVING COUNT(*) > 100;

INSERT INTO totals
SELECT best.shop, 'best', MAX(best.total)
FROM (
  SELECT shop, window_start, SUM(price) AS total
  FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '5' MINUTE))
  GROUP BY shop, window_start, window_end
  UNION ALL
  SELECT shop, window_start, SUM(price) AS total
  FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
  GROUP BY shop, window_start, window_end
  HAVING COUNT(*) > 1
) AS best
GROUP BY best.shop;
