CREATE TABLE Orders (
  `user` BIGINT,
  product STRING,
  amount INT,
  order_time TIMESTAMP(3),
  WATERMARK FOR order_time AS order_time - INTERVAL '1' MINUTE
) WITH ('connector' = 'kafka', 'topic' = 'orders', 'properties.bootstrap.servers' = 'kafka:9092',
  'scan.startup.mode' = 'latest-offset', 'format' = 'csv');

CREATE TABLE sums (usr BIGINT, wStart TIMESTAMP(3), total INT, mean DOUBLE)
WITH ('connector' = 'print');

INSERT INTO sums
SELECT `user`, TUMBLE_START(order_time, INTERVAL '1' DAY), SUM(amount), AVG(amount)
FROM Orders
GROUP BY TUMBLE(order_time, INTERVAL '1' DAY), `user`;
