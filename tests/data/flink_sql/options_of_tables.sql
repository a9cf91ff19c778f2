CREATE TABLE trips (
  car STRING,
  driver STRING,
  distance DOUBLE,
  at_text STRING,
  started AS CAST(REPLACE(at_text, '/', '-') AS TIMESTAMP(3)),
  WATERMARK FOR started AS started - INTERVAL '5' SECOND
) WITH (
  'connector' = 'kafka',
  'topic' = 'trips',
  'properties.bootstrap.servers' = 'kafka:9092',
  'properties.group.id' = 'trips-of-drivers',
  'scan.startup.mode' = 'earliest-offset',
  'scan.parallelism' = '2',
  'scan.topic-partition-discovery.interval' = '5 min',
  'scan.bounded.mode' = 'unbounded',
  'key.format' = 'json',
  'key.json.ignore-parse-errors' = 'true',
  'key.fields' = 'car',
  'value.fields-include' = 'EXCEPT_KEY',
  'value.format' = 'json',
  'value.json.timestamp-format.standard' = 'ISO-8601',
  'sink.partitioner' = 'fixed'
);

CREATE TABLE trips_of_drivers (
  since TIMESTAMP(3),
  driver STRING,
  distance DOUBLE,
  PRIMARY KEY (since, driver) NOT ENFORCED
) WITH (
  'connector' = 'jdbc',
  'url' = 'jdbc:postgresql://db:5432/trips?user=flink&password=s3cret',
  'table-name' = 'trips_of_drivers',
  'username' = 'flink',
  'password' = 's3cret',
  'sink.buffer-flush.interval' = '1 s'
);

CREATE TABLE orders (
  id STRING,
  ordered TIMESTAMP_LTZ(3),
  WATERMARK FOR ordered AS ordered
) WITH ('connector' = 'kafka', 'topic' = 'orders', 'properties.bootstrap.servers' = 'kafka:9092',
  'scan.startup.mode' = 'earliest-offset', 'key.format' = 'raw', 'key.fields' = 'id', 'value.format' = 'json');

INSERT INTO trips_of_drivers
SELECT window_start, driver, SUM(distance)
FROM TABLE(TUMBLE(TABLE trips, DESCRIPTOR(started), INTERVAL '1' MINUTE))
GROUP BY window_start, window_end, driver;

SELECT window_start, window_end, COUNT(id) AS orders
FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ordered), INTERVAL '1' MINUTE))
GROUP BY window_start, window_end;
