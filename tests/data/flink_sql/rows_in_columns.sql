CREATE TABLE visits (
  id BIGINT,
  cost BIGINT,
  place ROW<id BIGINT, cost BIGINT, owner ROW<id BIGINT>>,
  taken BIGINT,
  at_time AS TO_TIMESTAMP_LTZ(taken, 3),
  WATERMARK FOR at_time AS at_time - INTERVAL '5' SECOND
) WITH ('connector' = 'kafka', 'topic' = 'visits', 'properties.bootstrap.servers' = 'kafka:9092',
  'scan.startup.mode' = 'earliest-offset', 'format' = 'json');
SET 'table.local-time-zone' = 'UTC';
CREATE VIEW place AS SELECT place.id, v.place.owner.id AS owner, cost, at_time FROM visits AS v WHERE place.cost > 0;
CREATE TABLE by_place (id BIGINT, window_start TIMESTAMP(3), window_end TIMESTAMP(3), total BIGINT) WITH ('connector' = 'print');
CREATE TABLE by_owner (owner BIGINT, n BIGINT) WITH ('connector' = 'print');
CREATE TABLE by_visit (id BIGINT, total BIGINT) WITH ('connector' = 'print');
INSERT INTO by_place
SELECT v.place.id AS id, window_start, window_end, SUM(v.place.cost) AS total
FROM TABLE(TUMBLE(TABLE visits, DESCRIPTOR(at_time), INTERVAL '1' MINUTE)) AS v
WHERE v.cost > 0 AND place.cost > 0
GROUP BY v.place.id, window_start, window_end;
INSERT INTO by_owner
SELECT p.owner, COUNT(*) AS n
FROM place p
GROUP BY p.owner, SESSION(p.at_time, INTERVAL '10' SECOND);
INSERT INTO by_visit
SELECT visits.id, SUM(visits.cost) AS total
FROM visits
GROUP BY visits.id, TUMBLE(visits.at_time, INTERVAL '1' MINUTE);
