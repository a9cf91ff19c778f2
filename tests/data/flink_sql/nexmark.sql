-- The windowed queries of the Nexmark benchmark, in words of our own: numbers 5, 7, 8, 11 and 12.
SET 'table.local-time-zone' = 'UTC';
SET 'pipeline.auto-watermark-interval' = '0';
CREATE TABLE market (
  part INT,
  place BIGINT,
  arrived STRING,
  kind INT,
  person ROW<id BIGINT, name STRING, city STRING, made_at TIMESTAMP(3)>,
  auction ROW<id BIGINT, seller BIGINT, category BIGINT, made_at TIMESTAMP(3)>,
  bid ROW<auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, made_at TIMESTAMP(3)>,
  made_at AS CASE WHEN kind = 0 THEN person.made_at WHEN kind = 1 THEN auction.made_at ELSE bid.made_at END,
  now_time AS PROCTIME(),
  WATERMARK FOR made_at AS made_at - INTERVAL '4' SECOND
) WITH (
  'connector' = 'filesystem',
  'path' = 'file:///data/market.jsonl',
  'format' = 'json'
);
CREATE VIEW bids AS SELECT bid.auction, bid.bidder, bid.price, bid.channel, made_at, now_time FROM market WHERE kind = 2;
CREATE VIEW people AS SELECT person.id, person.name, made_at FROM market WHERE kind = 0;
CREATE VIEW auctions AS SELECT auction.id, auction.seller, made_at FROM market WHERE kind = 1;

CREATE TABLE hot_items (auction BIGINT, num BIGINT) WITH ('connector' = 'blackhole');
INSERT INTO hot_items
SELECT mine.auction, mine.num
FROM (
  SELECT auction, COUNT(*) AS num, window_start AS starts, window_end AS ends
  FROM TABLE(HOP(TABLE bids, DESCRIPTOR(made_at), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
  GROUP BY auction, window_start, window_end
) AS mine
JOIN (
  SELECT MAX(counts.num) AS most, counts.starts, counts.ends
  FROM (
    SELECT COUNT(*) AS num, window_start AS starts, window_end AS ends
    FROM TABLE(HOP(TABLE bids, DESCRIPTOR(made_at), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
    GROUP BY auction, window_start, window_end
  ) AS counts
  GROUP BY counts.starts, counts.ends
) AS top ON mine.starts = top.starts AND mine.ends = top.ends AND mine.num >= top.most;

CREATE TABLE highest_bid (auction BIGINT, price BIGINT, bidder BIGINT, made_at TIMESTAMP(3)) WITH ('connector' = 'blackhole');
INSERT INTO highest_bid
SELECT b.auction, b.price, b.bidder, b.made_at
FROM bids AS b
JOIN (
  SELECT MAX(price) AS highest, window_end AS ends
  FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(made_at), INTERVAL '10' SECOND))
  GROUP BY window_start, window_end
) AS top ON b.price = top.highest
WHERE b.made_at BETWEEN top.ends - INTERVAL '10' SECOND AND top.ends;

CREATE TABLE new_sellers (id BIGINT, name STRING, starts TIMESTAMP(3)) WITH ('connector' = 'blackhole');
INSERT INTO new_sellers
SELECT p.id, p.name, p.starts
FROM (
  SELECT id, name, window_start AS starts, window_end AS ends
  FROM TABLE(TUMBLE(TABLE people, DESCRIPTOR(made_at), INTERVAL '10' SECOND))
  GROUP BY id, name, window_start, window_end
) AS p
JOIN (
  SELECT seller, window_start AS starts, window_end AS ends
  FROM TABLE(TUMBLE(TABLE auctions, DESCRIPTOR(made_at), INTERVAL '10' SECOND))
  GROUP BY seller, window_start, window_end
) AS a ON p.id = a.seller AND p.starts = a.starts AND p.ends = a.ends;

CREATE TABLE bidder_sessions (bidder BIGINT, bids BIGINT, starts TIMESTAMP(3), ends TIMESTAMP(3))
WITH ('connector' = 'blackhole');
INSERT INTO bidder_sessions
SELECT b.bidder, COUNT(*) AS bids, SESSION_START(b.made_at, INTERVAL '10' SECOND) AS starts,
  SESSION_END(b.made_at, INTERVAL '10' SECOND) AS ends
FROM bids AS b
GROUP BY b.bidder, SESSION(b.made_at, INTERVAL '10' SECOND);

CREATE TABLE bidder_now (bidder BIGINT, bids BIGINT, starts TIMESTAMP(3), ends TIMESTAMP(3))
WITH ('connector' = 'blackhole');
INSERT INTO bidder_now
SELECT bidder, COUNT(*) AS bids, window_start, window_end
FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(now_time), INTERVAL '10' SECOND))
GROUP BY bidder, window_start, window_end;
