import java.time.Duration;
import org.apache.flink.api.common.eventtime.Watermark;
import org.apache.flink.api.common.eventtime.WatermarkGenerator;
import org.apache.flink.api.common.eventtime.WatermarkOutput;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple5;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.windowing.assigners.EventTimeSessionWindows;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.table.api.Schema;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.types.Row;
import org.apache.flink.util.CloseableIterator;

/** Runs the same records through tumbling windows, sessions and SQL, with evidence. Prints a line for each emitted row. */
public class EvidenceJob {

    /** A watermark 2 s behind the largest event time, with every record. */
    private static final class PerEvent implements WatermarkGenerator<Tuple5<Integer, Long, String, Long, Long>> {
        private long largest = Long.MIN_VALUE + 2001;

        @Override
        public void onEvent(Tuple5<Integer, Long, String, Long, Long> record, long time, WatermarkOutput output) {
            largest = Math.max(largest, time);
            output.emitWatermark(new Watermark(largest - 2001));
        }

        @Override
        public void onPeriodicEmit(WatermarkOutput output) {}
    }

    private static final class Sum implements AggregateFunction<Tuple5<Integer, Long, String, Long, Long>, Long, Long> {
        @Override
        public Long createAccumulator() {
            return 0L;
        }

        @Override
        public Long add(Tuple5<Integer, Long, String, Long, Long> record, Long sum) {
            return sum + record.f4;
        }

        @Override
        public Long getResult(Long sum) {
            return sum;
        }

        @Override
        public Long merge(Long one, Long other) {
            return one + other;
        }
    }

    @SuppressWarnings("unchecked")
    public static void main(String[] arguments) throws Exception {
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment();
        environment.setParallelism(1);
        Tuple5<Integer, Long, String, Long, Long>[] records = new Tuple5[arguments.length];
        for (int i = 0; i < records.length; i++) {
            String[] parts = arguments[i].split(",");
            records[i] = Tuple5.of(
                    Integer.valueOf(parts[0]), Long.valueOf(parts[1]), parts[2], Long.valueOf(parts[3]),
                    Long.valueOf(parts[4]));
        }
        WatermarkStrategy<Tuple5<Integer, Long, String, Long, Long>> strategy = WatermarkStrategy
                .<Tuple5<Integer, Long, String, Long, Long>>forGenerator(context -> new PerEvent())
                .withTimestampAssigner((record, before) -> record.f3);
        DataStream<Tuple5<Integer, Long, String, Long, Long>> log = environment
                .fromData(Types.TUPLE(Types.INT, Types.LONG, Types.STRING, Types.LONG, Types.LONG), records)
                .assignTimestampsAndWatermarks(strategy);

        Evidence.aggregate(
                        log.keyBy(record -> record.f2)
                                .window(TumblingEventTimeWindows.of(Duration.ofSeconds(10)))
                                .allowedLateness(Duration.ofSeconds(5)),
                        new Sum(), record -> record.f0, record -> record.f1, Types.STRING, Types.LONG, Types.LONG)
                .executeAndCollect("tumbling")
                .forEachRemaining(row -> print("tumbling", row.f0, row.f1, row.f2, row.f3, row.f4, row.f5));
        Evidence.aggregate(
                        log.keyBy(record -> record.f2).window(EventTimeSessionWindows.withGap(Duration.ofSeconds(3))),
                        new Sum(), record -> record.f0, record -> record.f1, Types.STRING, Types.LONG, Types.LONG)
                .executeAndCollect("session")
                .forEachRemaining(row -> print("session", row.f0, row.f1, row.f2, row.f3, row.f4, row.f5));

        StreamTableEnvironment tables = StreamTableEnvironment.create(environment);
        tables.createTemporaryView("log", tables.fromDataStream(log, Schema.newBuilder()
                .columnByExpression("ts", "TO_TIMESTAMP_LTZ(f3, 3)")
                .watermark("ts", "SOURCE_WATERMARK()")
                .build()));
        tables.executeSql("CREATE TEMPORARY FUNCTION LAST_OFFSETS AS 'Evidence$LastOffsets'");
        try (CloseableIterator<Row> rows = tables.executeSql(
                "SELECT f2, UNIX_TIMESTAMP(CAST(window_start AS STRING)) * 1000, "
                        + "UNIX_TIMESTAMP(CAST(window_end AS STRING)) * 1000, SUM(f4), LAST_OFFSETS(f0, f1), "
                        + "CURRENT_ROW_TIMESTAMP() "
                        + "FROM TABLE(TUMBLE(TABLE log, DESCRIPTOR(ts), INTERVAL '10' SECOND)) "
                        + "GROUP BY f2, window_start, window_end").collect()) {
            rows.forEachRemaining(row -> print("sql", row.getField(0), row.getField(1), row.getField(2),
                    row.getField(3), row.getField(4), ((java.time.Instant) row.getField(5)).toEpochMilli()));
        }
    }

    private static void print(Object... parts) {
        StringBuilder line = new StringBuilder("ROW");
        for (Object part : parts) {
            line.append('\t').append(part);
        }
        System.out.println(line);
    }
}
