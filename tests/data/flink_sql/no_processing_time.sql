CREATE TABLE Orders (id BIGINT, proc AS PROCTIME())
WITH ('connector' = 'kafka', 'topic' = 'orders', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');

SELECT TUMBLE_START(proc, INTERVAL '1' HOUR), COUNT(*) FROM Orders GROUP BY TUMBLE(proc, INTERVAL '1' HOUR);
