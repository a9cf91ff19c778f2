CREATE TABLE orders (shop STRING, amount BIGINT, at_time TIMESTAMP(3),
  WATERMARK FOR at_time AS at_time - INTERVAL '30' SECOND) WITH ('connector' = 'kafka', 'topic' = 'orders', 'properties.bootstrap.servers' = 'kafka:9092',
  'scan.startup.mode' = 'earliest-offset', 'format' = 'json');
SELECT shop, MAX(FLOOR(at_time TO HOUR)) AS last_hour
FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(at_time), INTERVAL '1' DAY)) GROUP BY shop, window_start, window_end;
SELECT shop, MAX(CEIL(at_time TO HOUR)) AS next_hour
FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(at_time), INTERVAL '1' DAY)) GROUP BY shop, window_start, window_end;
