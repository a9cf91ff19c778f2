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
  'scan.watermark.emit.strategy' = 'on-event',
  'scan.watermark.idle-timeout' = '1min',
  'format' = 'json'
);

SELECT window_start, window_end, SUM(CASE WHEN price > 10 THEN 1 ELSE 0 END) AS dear
FROM TABLE(TUMBLE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '10' MINUTES))
GROUP BY window_start, window_end;
