// Evidence for Rewindow: the last offset of each partition in a window's contents, and when the row was emitted.
//
// Copy this file into your Flink job; it needs no library beside Flink 1.20 or 2.x. How to use it, and what it costs:
// docs/flink.md, "Evidence".

import java.util.HashMap;
import java.util.Map;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.typeinfo.TypeHint;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.tuple.Tuple6;
import org.apache.flink.api.java.typeutils.TupleTypeInfo;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.datastream.WindowedStream;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.table.annotation.DataTypeHint;
import org.apache.flink.table.annotation.FunctionHint;
import org.apache.flink.util.Collector;

public final class Evidence {

    private Evidence() {}

    /**
     * Aggregates windows as {@code windows.aggregate(aggregate)} does, with evidence.
     *
     * @param partition the partition of a record in the log
     * @param offset its offset there
     * @return key, window start, window end (exclusive, both epoch ms), the aggregate's result, last offset by partition,
     *     and the wall clock of the firing (epoch ms)
     */
    public static <IN, ACC, OUT, KEY> SingleOutputStreamOperator<Tuple6<KEY, Long, Long, OUT, Map<Integer, Long>, Long>>
            aggregate(
                    WindowedStream<IN, KEY, TimeWindow> windows,
                    AggregateFunction<IN, ACC, OUT> aggregate,
                    KeySelector<IN, Integer> partition,
                    KeySelector<IN, Long> offset,
                    TypeInformation<KEY> key,
                    TypeInformation<ACC> accumulator,
                    TypeInformation<OUT> result) {
        TypeInformation<Map<Integer, Long>> offsets = TypeInformation.of(new TypeHint<Map<Integer, Long>>() {});
        return windows.aggregate(
                new WithOffsets<>(aggregate, partition, offset),
                new WithTimes<>(),
                new TupleTypeInfo<>(accumulator, offsets),
                new TupleTypeInfo<>(result, offsets),
                new TupleTypeInfo<>(key, Types.LONG, Types.LONG, result, offsets, Types.LONG));
    }

    private static final class WithOffsets<IN, ACC, OUT>
            implements AggregateFunction<IN, Tuple2<ACC, Map<Integer, Long>>, Tuple2<OUT, Map<Integer, Long>>> {
        private final AggregateFunction<IN, ACC, OUT> aggregate;
        private final KeySelector<IN, Integer> partition;
        private final KeySelector<IN, Long> offset;

        WithOffsets(
                AggregateFunction<IN, ACC, OUT> aggregate,
                KeySelector<IN, Integer> partition,
                KeySelector<IN, Long> offset) {
            this.aggregate = aggregate;
            this.partition = partition;
            this.offset = offset;
        }

        @Override
        public Tuple2<ACC, Map<Integer, Long>> createAccumulator() {
            return Tuple2.of(aggregate.createAccumulator(), new HashMap<>());
        }

        @Override
        public Tuple2<ACC, Map<Integer, Long>> add(IN record, Tuple2<ACC, Map<Integer, Long>> seen) {
            try {
                seen.f1.merge(partition.getKey(record), offset.getKey(record), Math::max);
            } catch (Exception error) {
                throw new IllegalStateException("no partition or offset of " + record, error);
            }
            return Tuple2.of(aggregate.add(record, seen.f0), seen.f1);
        }

        @Override
        public Tuple2<OUT, Map<Integer, Long>> getResult(Tuple2<ACC, Map<Integer, Long>> seen) {
            return Tuple2.of(aggregate.getResult(seen.f0), new HashMap<>(seen.f1));
        }

        @Override
        public Tuple2<ACC, Map<Integer, Long>> merge(
                Tuple2<ACC, Map<Integer, Long>> one, Tuple2<ACC, Map<Integer, Long>> other) {
            other.f1.forEach((partition, offset) -> one.f1.merge(partition, offset, Math::max));
            return Tuple2.of(aggregate.merge(one.f0, other.f0), one.f1);
        }
    }

    private static final class WithTimes<KEY, OUT>
            extends ProcessWindowFunction<
                    Tuple2<OUT, Map<Integer, Long>>,
                    Tuple6<KEY, Long, Long, OUT, Map<Integer, Long>, Long>,
                    KEY,
                    TimeWindow> {
        @Override
        public void process(
                KEY key,
                Context context,
                Iterable<Tuple2<OUT, Map<Integer, Long>>> results,
                Collector<Tuple6<KEY, Long, Long, OUT, Map<Integer, Long>, Long>> out) {
            TimeWindow window = context.window();
            for (Tuple2<OUT, Map<Integer, Long>> result : results) {
                long now = context.currentProcessingTime();
                out.collect(Tuple6.of(key, window.getStart(), window.getEnd(), result.f0, result.f1, now));
            }
        }
    }

    /**
     * For SQL: {@code LAST_OFFSETS(`partition`, `offset`)}, the last offset of each partition among the aggregated rows.
     *
     * <p>{@code CREATE TEMPORARY FUNCTION LAST_OFFSETS AS 'Evidence$LastOffsets'}
     */
    @FunctionHint(
            accumulator = @DataTypeHint("ROW<offsets MAP<INT, BIGINT>>"),
            output = @DataTypeHint("MAP<INT, BIGINT>"))
    public static final class LastOffsets
            extends org.apache.flink.table.functions.AggregateFunction<Map<Integer, Long>, org.apache.flink.types.Row> {
        @Override
        public org.apache.flink.types.Row createAccumulator() {
            return org.apache.flink.types.Row.of(new HashMap<Integer, Long>());
        }

        @Override
        public Map<Integer, Long> getValue(org.apache.flink.types.Row seen) {
            return offsets(seen);
        }

        public void accumulate(org.apache.flink.types.Row seen, Integer partition, Long offset) {
            if (partition != null && offset != null) {
                offsets(seen).merge(partition, offset, Math::max);
            }
        }

        public void merge(org.apache.flink.types.Row seen, Iterable<org.apache.flink.types.Row> others) {
            for (org.apache.flink.types.Row other : others) {
                offsets(other).forEach((partition, offset) -> offsets(seen).merge(partition, offset, Math::max));
            }
        }

        @SuppressWarnings("unchecked")
        private static Map<Integer, Long> offsets(org.apache.flink.types.Row seen) {
            return (Map<Integer, Long>) seen.getField(0);
        }
    }
}
