CREATE TABLE Bid (
  item STRING,
  supplier_id STRING,
  price DECIMAL(10, 2),
  bidtime TIMESTAMP(3),
  WATERMARK FOR bidtime AS bidtime - INTERVAL '5' SECOND
) WITH (
  'connector' = 'kafka',
  'topic' = 'bids',
  'properties.bootstrap.servers' = 'kafka:9092',
  'properties.group.id' = 'bids-per-supplier',
  'scan.startup.mode' = 'earliest-offset',
  'format' = 'json'
);

SELECT UPPER(item) AS item, SESSION_START(bidtime, INTERVAL '12' HOUR) AS since, SUM(price / 2) AS half
FROM Bid
GROUP BY UPPER(item), SESSION(bidtime, INTERVAL '12' HOUR);
