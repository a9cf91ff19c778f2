import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.RestartStrategyOptions;
import org.apache.flink.configuration.StateRecoveryOptions;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;
import org.apache.kafka.common.TopicPartition;

/**
 * Counts and sums by key in windows of a minute, 10 s behind the latest event time of each partition, until it has read
 * so many records; then stops with a savepoint, whose path it prints. Arguments: servers, topic, offsets (0=3,1=3;
 * empty: the earliest), records, first window that the sink takes (epoch ms), file of the rows, folder of savepoints,
 * savepoint to go on from (optional).
 */
public class CutoverJob {
  static final Pattern RECORD = Pattern.compile("\\{\"k\": \"(\\w+)\", \"ts\": (\\d+), \"v\": (\\d+)\\}");
  static final AtomicInteger READ = new AtomicInteger();

  static Tuple3<String, Long, Long> parsed(String text) {
    Matcher found = RECORD.matcher(text);
    if (!found.matches()) throw new IllegalArgumentException(text);
    return Tuple3.of(found.group(1), Long.valueOf(found.group(2)), Long.valueOf(found.group(3)));
  }

  static class Row extends ProcessWindowFunction<Tuple3<String, Long, Long>, String, String, TimeWindow> {
    private final String file;
    private final long first;

    Row(String file, long first) {
      this.file = file;
      this.first = first;
    }

    @Override
    public void process(String key, Context context, Iterable<Tuple3<String, Long, Long>> records,
        Collector<String> out) throws Exception {
      if (context.window().getStart() < first) return;
      long count = 0, total = 0;
      for (Tuple3<String, Long, Long> record : records) {
        count++;
        total += record.f2;
      }
      String row = String.format("{\"k\": \"%s\", \"s\": %d, \"n\": %d, \"total\": %d}%n", key,
          context.window().getStart(), count, total);
      Files.writeString(Path.of(file), row, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
      out.collect(row);
    }
  }

  static OffsetsInitializer offsets(String topic, String text) {
    if (text.isEmpty()) return OffsetsInitializer.earliest();
    Map<TopicPartition, Long> offsets = new HashMap<>();
    for (String pair : text.split(",")) {
      String[] parts = pair.split("=");
      offsets.put(new TopicPartition(topic, Integer.parseInt(parts[0])), Long.valueOf(parts[1]));
    }
    return OffsetsInitializer.offsets(offsets);
  }

  public static void main(String[] arguments) throws Exception {
    String topic = arguments[1];
    Configuration settings = new Configuration();
    settings.set(RestartStrategyOptions.RESTART_STRATEGY, "disable");
    if (arguments.length > 7) settings.set(StateRecoveryOptions.SAVEPOINT_PATH, arguments[7]);
    StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment(settings);
    environment.setParallelism(1);
    KafkaSource<String> source = KafkaSource.<String>builder()
        .setBootstrapServers(arguments[0])
        .setTopics(topic)
        .setGroupId("cutover")
        .setStartingOffsets(offsets(topic, arguments[2]))
        .setValueOnlyDeserializer(new SimpleStringSchema())
        .build();
    WatermarkStrategy<String> watermark = WatermarkStrategy
        .<String>forBoundedOutOfOrderness(Duration.ofSeconds(10))
        .withTimestampAssigner((text, before) -> parsed(text).f1);
    environment.fromSource(source, watermark, "orders")
        .map(CutoverJob::parsed)
        .returns(Types.TUPLE(Types.STRING, Types.LONG, Types.LONG))
        .map(record -> {
          READ.incrementAndGet();
          return record;
        })
        .returns(Types.TUPLE(Types.STRING, Types.LONG, Types.LONG))
        .keyBy(record -> record.f0)
        .window(TumblingEventTimeWindows.of(Duration.ofMinutes(1)))
        .process(new Row(arguments[5], Long.parseLong(arguments[4])))
        .sinkTo(new DiscardingSink<>());
    JobClient job = environment.executeAsync();
    long until = System.currentTimeMillis() + 120_000;
    while (READ.get() < Integer.parseInt(arguments[3])) {
      if (System.currentTimeMillis() > until) throw new IllegalStateException("read only " + READ.get());
      Thread.sleep(50);
    }
    Thread.sleep(1_000); // five emissions of the watermark
    System.out.println("SAVEPOINT "
        + job.stopWithSavepoint(false, arguments[6], SavepointFormatType.CANONICAL).get(60, TimeUnit.SECONDS));
    System.exit(0);
  }
}
