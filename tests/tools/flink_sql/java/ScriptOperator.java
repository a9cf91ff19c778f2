import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.connector.source.ReaderOutput;
import org.apache.flink.api.connector.source.SourceOutput;
import org.apache.flink.metrics.groups.UnregisteredMetricsGroup;
import org.apache.flink.runtime.metrics.groups.UnregisteredMetricGroups;
import org.apache.flink.streaming.api.operators.AbstractStreamOperator;
import org.apache.flink.streaming.api.operators.OneInputStreamOperator;
import org.apache.flink.streaming.api.operators.source.TimestampsAndWatermarks;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.streaming.runtime.io.PushingAsyncDataInput;
import org.apache.flink.streaming.runtime.streamrecord.LatencyMarker;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.streaming.runtime.watermarkstatus.WatermarkStatus;
import org.apache.flink.table.data.RowData;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;

/**
 * One source subtask. It does what SourceOperator does, with Flink's own event-time logic and the strategy that the
 * planner pushed into the table's source (null: the planner put an assigner behind the source), but with processing time
 * taken from the steps. What it emits goes into the chained operators as a source's output does.
 */
public class ScriptOperator extends AbstractStreamOperator<RowData> implements OneInputStreamOperator<Integer, RowData> {
    static final Turns.Step[] step = new Turns.Step[8];
    static final boolean[] idle = new boolean[8];

    private final WatermarkStrategy<RowData> strategy;
    private transient int me;
    private transient ManualTimeService time;
    private transient Map<Integer, SourceOutput<RowData>> outputs;

    public ScriptOperator(WatermarkStrategy<RowData> strategy) { this.strategy = strategy; }

    @Override
    @SuppressWarnings("unchecked")
    public void open() throws Exception {
        super.open();
        me = getRuntimeContext().getTaskInfo().getIndexOfThisSubtask();
        idle[me] = false;
        time = new ManualTimeService(Turns.job.clockStart);
        outputs = new HashMap<>();
        if (strategy == null) return;
        TimestampsAndWatermarks<RowData> logic = logic();
        logic.startPeriodicWatermarkEmits();
        PushingAsyncDataInput.DataOutput<RowData> out = (PushingAsyncDataInput.DataOutput<RowData>) Proxy.newProxyInstance(
                getClass().getClassLoader(), new Class<?>[] {PushingAsyncDataInput.DataOutput.class}, (proxy, method, args) -> {
                    if (method.getName().equals("emitRecord")) output.collect((StreamRecord<RowData>) args[0]);
                    else if (method.getName().equals("emitWatermark")) output.emitWatermark((Watermark) args[0]);
                    else if (method.getName().equals("emitWatermarkStatus")) {
                        idle[me] = ((WatermarkStatus) args[0]).isIdle();
                        output.emitWatermarkStatus((WatermarkStatus) args[0]);
                    }
                    else if (method.getDeclaringClass() == Object.class) return 0;
                    return null;
                });
        ReaderOutput<RowData> main = logic.createMainOutput(out, new TimestampsAndWatermarks.WatermarkUpdateListener() {
            public void updateIdle(boolean idle) {}
            public void updateCurrentEffectiveWatermark(long watermark) {}
            public void updateCurrentSplitWatermark(String split, long watermark) {}
            public void updateCurrentSplitIdle(String split, boolean idle) {}
            public void splitFinished(String split) {}
        });
        for (int partition : Turns.job.subtasks[me]) outputs.put(partition, main.createOutputForSplit(Integer.toString(partition)));
    }

    /** Versions differ in how many clocks they ask for. */
    @SuppressWarnings("unchecked")
    private TimestampsAndWatermarks<RowData> logic() throws Exception {
        Object[] known = {strategy, new UnregisteredMetricsGroup(), time, Turns.job.interval, time.getClock(),
                UnregisteredMetricGroups.createUnregisteredTaskMetricGroup().getIOMetricGroup()};
        for (Method method : TimestampsAndWatermarks.class.getMethods()) {
            if (!method.getName().equals("createProgressiveEventTimeLogic")) continue;
            Object[] arguments = Arrays.stream(method.getParameterTypes())
                    .map(type -> Arrays.stream(known).filter(one -> type.isInstance(one) || type == long.class && one instanceof Long).findFirst().get())
                    .toArray();
            return (TimestampsAndWatermarks<RowData>) method.invoke(null, arguments);
        }
        throw new IllegalStateException("no event-time logic");
    }

    @Override
    public void processElement(StreamRecord<Integer> turn) throws Exception {
        Turns.Step now = step[me];
        time.advanceTo(now.clock, ms -> {});
        if (now.record >= 0) {
            Turns.consumed = now.record + 1;
            RowData row = Turns.job.rows.get(now.record);
            if (strategy == null) output.collect(new StreamRecord<>(row));
            else outputs.get(Turns.job.partitions[now.record]).collect(row);
        }
        output.emitLatencyMarker(new LatencyMarker(now.number, getOperatorID(), me));
    }

    @Override
    public void processWatermark(Watermark w) {
        if (w.getTimestamp() != Long.MAX_VALUE) return;
        output.emitWatermark(w);
        output.emitLatencyMarker(new LatencyMarker(-1 - me, getOperatorID(), me));
    }

    @Override
    public void processWatermarkStatus(WatermarkStatus s) {}
}
