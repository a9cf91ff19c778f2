CREATE TABLE Orders (
  shop STRING, name STRING, amount BIGINT, ts TIMESTAMP(3), proc AS PROCTIME(), WATERMARK FOR ts AS ts
) WITH ('connector' = 'kafka', 'topic' = 'orders', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');

CREATE TABLE Shops (id STRING, name STRING, region STRING) WITH ('connector' = 'jdbc');
CREATE TABLE Ids (id STRING) WITH ('connector' = 'jdbc');

-- The key of a left join, where there is no row.
SELECT s.id, COUNT(*) FROM Orders AS o LEFT JOIN Shops FOR SYSTEM_TIME AS OF o.proc AS s ON o.shop = s.id
GROUP BY TUMBLE(ts, INTERVAL '1' HOUR), s.id;

-- A column of the record that one of the table hides.
SELECT o.name, COUNT(*) FROM Orders AS o JOIN Shops FOR SYSTEM_TIME AS OF o.proc AS s ON o.shop = s.id
GROUP BY TUMBLE(ts, INTERVAL '1' HOUR), o.name;

-- Not by equality.
SELECT s.region, COUNT(*) FROM Orders AS o JOIN Shops FOR SYSTEM_TIME AS OF o.proc AS s ON o.shop = s.id AND s.region <> 'x'
GROUP BY TUMBLE(ts, INTERVAL '1' HOUR), s.region;

-- At a time that is no time attribute.
SELECT s.region, COUNT(*) FROM Orders AS o JOIN Shops FOR SYSTEM_TIME AS OF o.shop AS s ON o.shop = s.id
GROUP BY TUMBLE(ts, INTERVAL '1' HOUR), s.region;

-- Nothing says whether there was a row.
SELECT o.shop, COUNT(*) FROM Orders AS o JOIN Ids FOR SYSTEM_TIME AS OF o.proc AS s ON o.shop = s.id
GROUP BY TUMBLE(ts, INTERVAL '1' HOUR), o.shop;

-- Behind a deduplication.
SELECT s.region, COUNT(*) FROM
  (SELECT shop, ts, proc FROM (SELECT shop, ts, proc, ROW_NUMBER() OVER (PARTITION BY shop ORDER BY ts) AS nth FROM Orders)
   WHERE nth = 1) AS o
  JOIN Shops FOR SYSTEM_TIME AS OF o.proc AS s ON o.shop = s.id
GROUP BY TUMBLE(ts, INTERVAL '1' HOUR), s.region;
