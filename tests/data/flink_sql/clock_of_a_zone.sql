SET 'table.local-time-zone' = 'Asia/Shanghai';
CREATE TABLE hits (page STRING, taken BIGINT, at_time AS TO_TIMESTAMP(FROM_UNIXTIME(taken / 1000)),
  WATERMARK FOR at_time AS at_time - INTERVAL '1' SECOND) WITH ('connector' = 'kafka', 'topic' = 'hits', 'properties.bootstrap.servers' = 'kafka:9092',
  'scan.startup.mode' = 'earliest-offset', 'format' = 'json');
CREATE TABLE hits_of_pattern (page STRING, taken BIGINT,
  at_time AS TO_TIMESTAMP(FROM_UNIXTIME(taken, 'yyyy-MM-dd HH:mm:ss')),
  WATERMARK FOR at_time AS at_time - INTERVAL '1' SECOND) WITH ('connector' = 'kafka', 'topic' = 'hits', 'properties.bootstrap.servers' = 'kafka:9092',
  'scan.startup.mode' = 'earliest-offset', 'format' = 'json');
CREATE TABLE days (page STRING, n BIGINT) WITH ('connector' = 'print');
INSERT INTO days SELECT page, COUNT(*) AS n
FROM TABLE(TUMBLE(TABLE hits, DESCRIPTOR(at_time), INTERVAL '1' DAY)) GROUP BY page, window_start, window_end;
INSERT INTO days SELECT page, COUNT(*) AS n
FROM TABLE(TUMBLE(TABLE hits_of_pattern, DESCRIPTOR(at_time), INTERVAL '10' SECOND)) GROUP BY page, window_start, window_end;
