CREATE TABLE taxi (
  ride BIGINT,
  fare DOUBLE,
  started TIMESTAMP(3),
  WATERMARK FOR started AS started - INTERVAL '1 10' DAY TO HOUR
) WITH ('connector' = 'filesystem', 'path' = 'file:///data/taxi', 'format' = 'csv');

SELECT window_start, window_end, SUM(fare) AS fares
FROM TABLE(TUMBLE(TABLE taxi, DESCRIPTOR(started), INTERVAL '1' HOUR))
GROUP BY window_start, window_end;
