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

CREATE TABLE Ask (item STRING, price DECIMAL(10, 2), asktime TIMESTAMP(3),
  WATERMARK FOR asktime AS asktime - INTERVAL '5' SECOND)
WITH ('connector' = 'kafka', 'topic' = 'asks', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');

INSERT INTO matched
SELECT b.item, COUNT(*) FROM Bid b JOIN Ask a ON a.item = b.item
  AND b.bidtime BETWEEN a.asktime - INTERVAL '1' HOUR AND a.asktime
GROUP BY b.item, TUMBLE(b.bidtime, INTERVAL '1' HOUR);
