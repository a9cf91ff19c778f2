CREATE TABLE Orders (
  shop STRING,
  amount BIGINT,
  ts TIMESTAMP(3),
  proc AS PROCTIME(),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH (
  'connector' = 'kafka',
  'topic' = 'orders',
  'properties.bootstrap.servers' = 'kafka:9092',
  'scan.startup.mode' = 'earliest-offset',
  'format' = 'json'
);

CREATE TABLE Shops (
  id STRING,
  region STRING NOT NULL,
  PRIMARY KEY (id) NOT ENFORCED
) WITH (
  'connector' = 'jdbc',
  'url' = 'jdbc:postgresql://db/shops',
  'password' = 's3cret',
  'table-name' = 'shops'
);

CREATE VIEW placed AS
SELECT o.ts, UPPER(s.region) AS region, o.amount, s.id
FROM Orders AS o JOIN Shops FOR SYSTEM_TIME AS OF o.proc AS s ON o.shop = s.id
WHERE o.amount > 0;

SELECT window_start, window_end, region, SUM(amount) AS amount
FROM TABLE(TUMBLE(TABLE placed, DESCRIPTOR(ts), INTERVAL '10' MINUTES))
GROUP BY window_start, window_end, region;
