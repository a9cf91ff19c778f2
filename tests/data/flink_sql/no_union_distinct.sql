CREATE TABLE web (
  page STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts
) WITH ('connector' = 'kafka', 'topic' = 'web', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');

CREATE TABLE app (
  page STRING, at_ STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts
) WITH ('connector' = 'kafka', 'topic' = 'app', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');

SELECT page, COUNT(*) FROM (SELECT page, ts FROM web UNION SELECT page, ts FROM app)
GROUP BY TUMBLE(ts, INTERVAL '1' HOUR), page;

SELECT page, COUNT(*) FROM (SELECT page, ts FROM web UNION ALL SELECT page, at_ FROM app)
GROUP BY TUMBLE(ts, INTERVAL '1' HOUR), page;

SELECT page, COUNT(*) FROM (SELECT page, ts FROM web UNION ALL SELECT * FROM app)
GROUP BY TUMBLE(ts, INTERVAL '1' HOUR), page;

SELECT page, COUNT(*) FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY page ORDER BY ts) AS nth
  FROM (SELECT page, ts FROM web UNION ALL SELECT page, ts FROM app)
) WHERE nth = 1
GROUP BY TUMBLE(ts, INTERVAL '1' HOUR), page;
