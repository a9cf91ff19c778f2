import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import com.fasterxml.jackson.databind.*;

/**
 * A Kafka Streams application: counts by key in tumbling windows or in sessions, suppressed until they close, until it
 * has read so many records. Arguments: servers, input, output, window, records, state folder.
 */
public class Application {
  static final ObjectMapper JSON = new ObjectMapper();

  static JsonNode read(Object value) {
    try {
      return JSON.readTree((String) value);
    } catch (Exception e) {
      throw new RuntimeException(e);
    }
  }

  public static void main(String[] arguments) throws Exception {
    Properties settings = new Properties();
    settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[2]);
    settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
    settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[5]);
    settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
    settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
    settings.put("auto.offset.reset", "earliest");
    CountDownLatch left = new CountDownLatch(Integer.parseInt(arguments[4]));
    AtomicInteger failed = new AtomicInteger();

    StreamsBuilder builder = new StreamsBuilder();
    Serde<String> text = Serdes.String();
    KStream<String, String> records = builder.stream(arguments[1], Consumed.with(text, text)
        .withTimestampExtractor((record, before) -> read(record.value()).get("ts").asLong()));
    KGroupedStream<String, String> grouped = records.groupByKey();
    Duration grace = Duration.ofSeconds(3);
    KTable<Windowed<String>, Long> counts = arguments[3].equals("session")
        ? grouped.windowedBy(SessionWindows.ofInactivityGapAndGrace(Duration.ofSeconds(2), grace)).count(stored())
        : grouped.windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofSeconds(10), grace)).count(stored());
    counts.suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded())).toStream()
        .map((window, count) -> KeyValue.pair(window.key(), count == null ? null
            : JSON.createObjectNode().put("k", window.key()).put("s", window.window().start())
                .put("e", window.window().end()).put("n", count).toString()))
        .filter((key, row) -> row != null)
        .to(arguments[2], Produced.with(text, text));
    records.foreach((key, value) -> left.countDown());

    try (KafkaStreams streams = new KafkaStreams(builder.build(), settings)) {
      streams.setUncaughtExceptionHandler(problem -> {
        problem.printStackTrace();
        failed.set(1);
        while (left.getCount() > 0) left.countDown();
        return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
      });
      streams.start();
      if (!left.await(120, TimeUnit.SECONDS)) failed.set(2);
    }
    System.exit(failed.get());
  }

  static <S extends org.apache.kafka.streams.processor.StateStore> Materialized<String, Long, S> stored() {
    return Materialized.with(Serdes.String(), Serdes.Long());
  }
}
