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

INSERT INTO bids_of_the_day
SELECT window_start, window_end, item, MAX(price) AS highest
FROM TABLE(CUMULATE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '2' HOURS, INTERVAL '1' DAY))
WHERE price > 0 AND item IS NOT NULL
GROUP BY window_start, window_end, item;
