CREATE TABLE web (
  page STRING, visits INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts
) WITH ('connector' = 'kafka', 'topic' = 'web', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');

CREATE TABLE app (
  page STRING, visits BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '10' SECOND
) WITH ('connector' = 'kafka', 'topic' = 'app', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');

SELECT page, SUM(visits) AS visits
FROM (SELECT * FROM web UNION ALL SELECT * FROM app)
GROUP BY TUMBLE(ts, INTERVAL '1' HOUR), page;
