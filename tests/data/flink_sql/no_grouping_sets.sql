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

CREATE FUNCTION mask AS 'com.example.Mask' LANGUAGE JAVA;
SELECT window_start, window_end, item, SUM(price) AS total
FROM TABLE(TUMBLE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '10' MINUTES))
GROUP BY window_start, window_end, GROUPING SETS ((item), ());
