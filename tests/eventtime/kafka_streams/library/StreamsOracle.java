import java.io.*;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.time.*;
import java.util.*;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import org.apache.kafka.streams.state.*;
import org.apache.kafka.streams.test.TestRecord;
import com.fasterxml.jackson.databind.*;
import com.fasterxml.jackson.databind.node.*;

/**
 * Reads cases as JSON lines and writes for each one a line with the rows that the real library gives. One driver is one
 * task. The aggregate is text: the numbers of the records that a window holds, `n` for one without a value.
 */
public class StreamsOracle {
  static final ObjectMapper JSON = new ObjectMapper();

  public static void main(String[] args) throws Exception {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    String line;
    while ((line = in.readLine()) != null) out.println(JSON.writeValueAsString(run(JSON.readTree(line))));
  }

  static ArrayNode run(JsonNode c) throws Exception {
    JsonNode config = c.get("config");
    int partitions = config.get("partitions").asInt();
    List<ObjectNode> all = new ArrayList<>();
    for (int p = 0; p < partitions; p++) {
      Path dir = Files.createTempDirectory("oracle");
      task(c, config, p, dir, all);
      try (var walk = Files.walk(dir)) { walk.sorted(Comparator.reverseOrder()).forEach(f -> f.toFile().delete()); }
    }
    all.sort(Comparator.comparingInt(o -> o.get("record").asInt()));
    ArrayNode rows = JSON.createArrayNode();
    all.forEach(rows::add);
    return rows;
  }

  static void task(JsonNode c, JsonNode config, int p, Path dir, List<ObjectNode> all) throws Exception {
    Topology topology = topology(config);
    Properties props = new Properties();
    props.put(StreamsConfig.APPLICATION_ID_CONFIG, "oracle");
    props.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "unused:1");
    props.put(StreamsConfig.STATE_DIR_CONFIG, dir.toString());
    props.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
    props.put("__emit.interval.ms.kstreams.windowed.aggregation__", config.has("emit_interval_ms") ? config.get("emit_interval_ms").asLong() : 1000L);
    JsonNode records = c.get("records");
    if (records.isEmpty()) return;
    long now = records.get(0).get(2).asLong();
    try (TopologyTestDriver driver = new TopologyTestDriver(topology, props, Instant.ofEpochMilli(now))) {
      TestInputTopic<String, String> input = driver.createInputTopic("in", new StringSerializer(), new StringSerializer());
      TestOutputTopic<Windowed<String>, String> output = driver.createOutputTopic("out", windowed(config), new StringDeserializer());
      for (int i = 0; i < records.size(); i++) {
        JsonNode r = records.get(i);
        if (r.get(0).asInt() != p || r.get(4).asLong() < 0) continue;
        if (r.get(2).asLong() > now) {
          driver.advanceWallClockTime(Duration.ofMillis(r.get(2).asLong() - now));
          now = r.get(2).asLong();
        }
        String key = r.get(3).isNull() ? null : r.get(3).asText();
        String value = r.get(5).isNull() ? null : Integer.toString(i);
        input.pipeInput(new TestRecord<>(key, value, new RecordHeaders(), r.get(4).asLong()));
        while (!output.isEmpty()) {
          TestRecord<Windowed<String>, String> row = output.readRecord();
          ObjectNode o = JSON.createObjectNode();
          o.put("record", i);
          o.put("partition", p);
          o.put("key", row.key().key());
          o.put("start", row.key().window().start());
          o.put("end", row.key().window().end());
          o.put("timestamp", row.timestamp());
          o.put("held", row.value());
          all.add(o);
        }
      }
    }
  }

  static Deserializer<Windowed<String>> windowed(JsonNode config) {
    JsonNode w = config.get("window");
    switch (w.get("kind").asText()) {
      case "session": return new SessionWindowedDeserializer<>(new StringDeserializer());
      case "sliding": return new TimeWindowedDeserializer<>(new StringDeserializer(), w.get("time_difference").asLong());
      default: return new TimeWindowedDeserializer<>(new StringDeserializer(), w.get("size").asLong());
    }
  }

  static Topology topology(JsonNode config) {
    JsonNode w = config.get("window");
    Duration grace = Duration.ofMillis(config.get("grace_ms").asLong());
    String emission = config.get("emission").asText();
    StreamsBuilder b = new StreamsBuilder();
    KGroupedStream<String, String> g = b.stream("in", Consumed.with(Serdes.String(), Serdes.String())).groupByKey();
    Initializer<String> init = () -> "";
    Aggregator<String, String, String> agg = (k, v, a) -> a + "," + (v == null ? "n" : v);
    EmitStrategy emit = emission.equals("emit_on_window_close") ? EmitStrategy.onWindowClose() : EmitStrategy.onWindowUpdate();
    KTable<Windowed<String>, String> table;
    Serde<Windowed<String>> serde;
    String kind = w.get("kind").asText();
    if (kind.equals("session")) {
      Materialized<String, String, SessionStore<Bytes, byte[]>> m = Materialized.<String, String, SessionStore<Bytes, byte[]>>as("store").withKeySerde(Serdes.String()).withValueSerde(Serdes.String()).withCachingDisabled();
      if (config.has("retention_ms")) m = m.withRetention(Duration.ofMillis(config.get("retention_ms").asLong()));
      table = g.windowedBy(SessionWindows.ofInactivityGapAndGrace(Duration.ofMillis(w.get("gap").asLong()), grace)).emitStrategy(emit).aggregate(init, agg, (k, x, y) -> x + y, m);
      serde = new WindowedSerdes.SessionWindowedSerde<>(Serdes.String());
    } else {
      Materialized<String, String, WindowStore<Bytes, byte[]>> m = Materialized.<String, String, WindowStore<Bytes, byte[]>>as("store").withKeySerde(Serdes.String()).withValueSerde(Serdes.String()).withCachingDisabled();
      if (config.has("retention_ms")) m = m.withRetention(Duration.ofMillis(config.get("retention_ms").asLong()));
      TimeWindowedKStream<String, String> tw;
      long size;
      if (kind.equals("sliding")) { size = w.get("time_difference").asLong(); tw = g.windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(Duration.ofMillis(size), grace)); }
      else { size = w.get("size").asLong(); TimeWindows t = TimeWindows.ofSizeAndGrace(Duration.ofMillis(size), grace); if (kind.equals("hopping")) t = t.advanceBy(Duration.ofMillis(w.get("advance").asLong())); tw = g.windowedBy(t); }
      table = tw.emitStrategy(emit).aggregate(init, agg, m);
      serde = new WindowedSerdes.TimeWindowedSerde<>(Serdes.String(), size);
    }
    if (emission.startsWith("suppress")) table = table.suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded()));
    table.toStream().to("out", Produced.with(serde, Serdes.String()));
    return b.build();
  }
}
