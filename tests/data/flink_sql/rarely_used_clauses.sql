CREATE TABLE trips (
  car STRING,
  distance DOUBLE,
  started TIMESTAMP(3),
  stamp_type STRING METADATA FROM 'timestamp-type' VIRTUAL,
  seen AS PROCTIME(),
  plate AS REGEXP_EXTRACT(car, '([A-Z]+)', 1),
  WATERMARK FOR started AS started - INTERVAL '5' SECOND
) WITH ('connector' = 'kafka', 'topic' = 'trips', 'properties.bootstrap.servers' = 'kafka:9092',
  'scan.startup.mode' = 'latest-offset', 'format' = 'json');

CREATE TABLE distances (
  since TIMESTAMP(3),
  plate STRING,
  total DOUBLE,
  written TIMESTAMP_LTZ(3) METADATA FROM 'timestamp',
  kilometres AS total / 1000,
  city STRING,
  WATERMARK FOR since AS since
) PARTITIONED BY (city) WITH ('connector' = 'filesystem', 'path' = 'file:///data/distances', 'format' = 'parquet');

CREATE TABLE never_read (id INT) WITH ('connector' = 'datagen');

CREATE VIEW long_trips AS
SELECT plate, distance, started
FROM trips /*+ OPTIONS('scan.startup.mode' = 'earliest-offset') */
WHERE REGEXP(plate, '[A-M].*');

CREATE VIEW never_selected AS SELECT car FROM trips;

INSERT OVERWRITE distances /*+ OPTIONS('sink.parallelism' = '1') */ PARTITION (city = 'NYC') (since, total, plate)
SELECT /*+ STATE_TTL('trips' = '1d') */ window_time AS since, SUM(distance), plate
FROM TABLE(TUMBLE(TABLE long_trips, DESCRIPTOR(started), INTERVAL '1' MINUTE))
GROUP BY window_start, window_end, window_time, plate;
