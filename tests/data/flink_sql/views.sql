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

CREATE VIEW dear AS SELECT item, price * 100 AS cents, bidtime FROM Bid WHERE price > 100;

WITH named AS (SELECT * FROM dear WHERE item <> '')
SELECT window_start, window_end, item, SUM(cents) FILTER (WHERE cents < 1000000) AS cents
FROM TABLE(TUMBLE(TABLE named, DESCRIPTOR(bidtime), INTERVAL '10' MINUTES))
GROUP BY window_start, window_end, item;
