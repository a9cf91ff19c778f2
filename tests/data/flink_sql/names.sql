-- Names of views' columns, of rows' fields, of aliases; `*` and what hides what.
CREATE TABLE shops (
  price BIGINT,
  item ROW<id BIGINT, price BIGINT, shop ROW<id BIGINT>>,
  shop STRING,
  at_time TIMESTAMP(3),
  WATERMARK FOR at_time AS at_time - INTERVAL '5' SECOND
) WITH (
  'connector' = 'kafka',
  'topic' = 'shops',
  'properties.bootstrap.servers' = 'kafka:9092',
  'scan.startup.mode' = 'earliest-offset',
  'format' = 'json'
);
CREATE VIEW turned (shop, price, at_time) AS SELECT item.id, item.price / 2, at_time FROM shops WHERE price > 0;
CREATE VIEW everything AS SELECT t.*, t.price AS paid FROM turned AS t;
CREATE TABLE sums (shop BIGINT, total BIGINT) WITH ('connector' = 'print');
INSERT INTO sums
WITH cheap (key_of, cost, row_time) AS (SELECT shop, paid, at_time FROM everything WHERE everything.price < 100)
SELECT item.key_of, SUM(item.cost) AS total
FROM TABLE(TUMBLE(TABLE cheap, DESCRIPTOR(row_time), INTERVAL '1' MINUTE)) AS item
GROUP BY item.key_of, window_start, window_end;
INSERT INTO sums
SELECT shop.item.shop.id, SUM(shop.price) AS total, MAX(shop.shop) AS shop
FROM shops AS shop (price, item, shop, t)
GROUP BY shop.item.shop.id, TUMBLE(t, INTERVAL '1' MINUTE);
