CREATE TABLE readings (
  sensor ROW<id STRING, site ROW<name STRING>>,
  taken BIGINT,
  temperature DOUBLE,
  tags MAP<STRING, ARRAY<INT>>,
  ts AS TO_TIMESTAMP(FROM_UNIXTIME(taken)),
  PRIMARY KEY (taken) NOT ENFORCED,
  WATERMARK FOR ts AS ts
) PARTITIONED BY (taken) WITH ('connector' = 'kafka', 'topic' = 'readings', 'properties.bootstrap.servers' = 'kafka:9092',
  'scan.startup.mode' = 'earliest-offset', 'format' = 'json');

SELECT window_start, window_end, sensor.site.name AS site, MIN(temperature) AS coldest
FROM TABLE(TUMBLE(TABLE readings, DESCRIPTOR(ts), INTERVAL '1' HOUR))
WHERE temperature BETWEEN -50 AND 60 AND sensor.id LIKE 'a%'
GROUP BY window_start, window_end, sensor.site.name;
