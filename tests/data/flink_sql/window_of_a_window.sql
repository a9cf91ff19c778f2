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

CREATE VIEW ten AS
SELECT window_start, window_end, window_time AS rowtime, SUM(price) AS total
FROM TABLE(TUMBLE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '10' MINUTES))
GROUP BY window_start, window_end, window_time;

SELECT window_start, window_end, SUM(total) AS total
FROM TABLE(TUMBLE(TABLE ten, DESCRIPTOR(rowtime), INTERVAL '1' HOUR))
GROUP BY window_start, window_end;
