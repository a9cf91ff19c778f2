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

SELECT item, HOP_END(bidtime, INTERVAL '1' MINUTE, INTERVAL '1' HOUR) AS until, COUNT(*) AS bids
FROM Bid
GROUP BY item, HOP(bidtime, INTERVAL '1' MINUTE, INTERVAL '1' HOUR);
