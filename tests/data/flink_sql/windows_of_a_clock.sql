SET 'table.local-time-zone' = 'Asia/Shanghai';
CREATE TABLE beats (device STRING, taken BIGINT, at_time AS TO_TIMESTAMP_LTZ(taken, 3),
  WATERMARK FOR at_time AS at_time - INTERVAL '5' SECOND) WITH ('connector' = 'kafka', 'topic' = 'beats', 'properties.bootstrap.servers' = 'kafka:9092',
  'scan.startup.mode' = 'earliest-offset', 'format' = 'json');
SELECT device, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE beats, DESCRIPTOR(at_time), INTERVAL '90' MINUTE))
GROUP BY device, window_start, window_end;
SELECT device, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE beats, DESCRIPTOR(at_time), INTERVAL '15' MINUTE))
GROUP BY device, window_start, window_end;
SELECT device, COUNT(*) AS n FROM TABLE(HOP(TABLE beats, DESCRIPTOR(at_time), INTERVAL '3' HOUR, INTERVAL '6' HOUR))
GROUP BY device, window_start, window_end;
SELECT device, COUNT(*) AS n FROM TABLE(CUMULATE(TABLE beats, DESCRIPTOR(at_time), INTERVAL '1' HOUR, INTERVAL '1' DAY))
GROUP BY device, window_start, window_end;
