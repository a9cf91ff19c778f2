SET 'table.exec.emit.allow-lateness' = '2 h';
SET 'table.exec.emit.late-fire.enabled' = 'true';
SET 'table.exec.emit.late-fire.delay' = '1 min';
SET 'table.exec.emit.early-fire.enabled' = 'true';
SET 'execution.checkpointing.interval' = '30 s';
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

INSERT INTO hourly
SELECT item, TUMBLE_START(bidtime, INTERVAL '1' HOUR) AS since, COUNT(*) AS bids
FROM Bid
GROUP BY item, TUMBLE(bidtime, INTERVAL '1' HOUR);
