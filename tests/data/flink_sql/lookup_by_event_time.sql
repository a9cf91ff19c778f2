CREATE TABLE Orders (
  currency STRING,
  amount BIGINT,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH (
  'connector' = 'kafka',
  'topic' = 'orders',
  'properties.bootstrap.servers' = 'kafka:9092',
  'scan.startup.mode' = 'earliest-offset',
  'format' = 'json'
);

CREATE TABLE Rates (
  currency STRING,
  rate BIGINT,
  updated_at TIMESTAMP(3),
  WATERMARK FOR updated_at AS updated_at,
  PRIMARY KEY (currency) NOT ENFORCED
) WITH (
  'connector' = 'iceberg',
  'catalog-name' = 'rewindow',
  'catalog-database' = 'ref',
  'catalog-table' = 'rates'
);

SELECT Orders.currency, SUM(amount * rate) AS total
FROM Orders LEFT JOIN Rates FOR SYSTEM_TIME AS OF Orders.ts ON Orders.currency = Rates.currency
GROUP BY TUMBLE(ts, INTERVAL '1' HOUR), Orders.currency;
