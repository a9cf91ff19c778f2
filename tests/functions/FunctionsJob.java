import java.time.Duration;
import job.Median;
import job.Reading;
import org.apache.flink.api.common.eventtime.Watermark;
import org.apache.flink.api.common.eventtime.WatermarkGenerator;
import org.apache.flink.api.common.eventtime.WatermarkOutput;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.SlidingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;

/** Runs records through windows with the job's own classes. Prints a line for each firing. */
public class FunctionsJob {

    private static final class PerEvent implements WatermarkGenerator<Reading> {
        private long largest = Long.MIN_VALUE + 10_001;

        @Override
        public void onEvent(Reading one, long time, WatermarkOutput output) {
            largest = Math.max(largest, time);
            output.emitWatermark(new Watermark(largest - 10_001));
        }

        @Override
        public void onPeriodicEmit(WatermarkOutput output) {}
    }

    private static final class Placed extends ProcessWindowFunction<Double, String, String, TimeWindow> {
        private final String kind;

        Placed(String kind) {
            this.kind = kind;
        }

        @Override
        public void process(String key, Context context, Iterable<Double> values, Collector<String> out) {
            out.collect("ROW\t" + kind + "\t" + key + "\t" + context.window().getStart() + "\t" + values.iterator().next());
        }
    }

    public static void main(String[] arguments) throws Exception {
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment();
        environment.setParallelism(1);
        Reading[] records = new Reading[arguments.length];
        for (int i = 0; i < records.length; i++) {
            String[] parts = arguments[i].split(",");
            records[i] = new Reading();
            records[i].sensor = parts[0];
            records[i].at = Long.parseLong(parts[1]);
            records[i].setValue(Double.parseDouble(parts[2]));
        }
        DataStream<Reading> log = environment.fromData(records).assignTimestampsAndWatermarks(
                WatermarkStrategy.<Reading>forGenerator(context -> new PerEvent())
                        .withTimestampAssigner((one, before) -> one.at));
        log.keyBy(one -> one.sensor).window(TumblingEventTimeWindows.of(Duration.ofMinutes(1)))
                .allowedLateness(Duration.ofMinutes(5))
                .aggregate(new Median(), new Placed("tumbling")).executeAndCollect()
                .forEachRemaining(System.out::println);
        log.keyBy(one -> one.sensor)
                .window(SlidingEventTimeWindows.of(Duration.ofMinutes(1), Duration.ofSeconds(20)))
                .aggregate(new Median(), new Placed("sliding")).executeAndCollect()
                .forEachRemaining(System.out::println);
    }
}
