// What Flink's own classes make of scripted records that reach one operator from the subtasks of several sources:
// ProgressiveTimestampsAndWatermarks for each subtask, StatusWatermarkValve in front of the operator. Reads a case from
// standard input, and writes the watermarks and statuses that the operator gets. README.md says how to run it.

import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import org.apache.flink.api.common.eventtime.*;
import org.apache.flink.api.connector.source.*;
import org.apache.flink.metrics.groups.UnregisteredMetricsGroup;
import org.apache.flink.runtime.event.WatermarkEvent;
import org.apache.flink.runtime.metrics.groups.UnregisteredMetricGroups;
import org.apache.flink.streaming.api.operators.source.TimestampsAndWatermarks;
import org.apache.flink.streaming.runtime.io.PushingAsyncDataInput.DataOutput;
import org.apache.flink.streaming.runtime.streamrecord.*;
import org.apache.flink.streaming.runtime.tasks.ProcessingTimeService;
import org.apache.flink.streaming.runtime.watermarkstatus.*;
import org.apache.flink.util.clock.Clock;

public class UnionRecorder {
    record Event(long timestamp, boolean marker) {}

    static final class Manual extends Clock {
        long now;
        @Override public long absoluteTimeMillis() { return now; }
        @Override public long relativeTimeMillis() { return now; }
        @Override public long relativeTimeNanos() { return now * 1_000_000; }
    }

    static final Manual CLOCK = new Manual();
    static int consumed = 0;

    /** The timers of one subtask: Flink asks for one that repeats. */
    static final class Timers implements ProcessingTimeService {
        ProcessingTimeCallback tick;
        @Override public Clock getClock() { return CLOCK; }
        @Override public long getCurrentProcessingTime() { return CLOCK.now; }
        @Override public ScheduledFuture<?> registerTimer(long at, ProcessingTimeCallback target) { tick = target; return null; }
        @Override public ScheduledFuture<?> scheduleAtFixedRate(ProcessingTimeCallback target, long delay, long period) {
            tick = target;
            return null;
        }
        @Override public ScheduledFuture<?> scheduleWithFixedDelay(ProcessingTimeCallback target, long delay, long period) {
            tick = target;
            return null;
        }
        @Override public CompletableFuture<Void> quiesce() { return CompletableFuture.completedFuture(null); }
    }

    abstract static class Output implements DataOutput<Event> {
        @Override public void emitRecord(StreamRecord<Event> record) {}
        @Override public void emitLatencyMarker(LatencyMarker marker) {}
        @Override public void emitRecordAttributes(RecordAttributes attributes) {}
        @Override public void emitWatermark(WatermarkEvent event) {}
    }

    /** Emits after each record, or marker record, `time - delay`. */
    static final class PerEvent implements WatermarkGenerator<Event> {
        final long delay;
        final boolean markers;
        long max = Long.MIN_VALUE;
        PerEvent(long delay, boolean markers) { this.delay = delay; this.markers = markers; }
        @Override public void onEvent(Event event, long timestamp, WatermarkOutput output) {
            if (markers) {
                if (event.marker()) output.emitWatermark(new Watermark(timestamp - delay));
                return;
            }
            max = Math.max(max, timestamp);
            output.emitWatermark(new Watermark(max - delay));
        }
        @Override public void onPeriodicEmit(WatermarkOutput output) {}
    }

    static WatermarkStrategy<Event> strategy(String kind, long bound, boolean perEvent, long idleness) {
        WatermarkStrategy<Event> found;
        if (kind.equals("punctuated")) found = context -> new PerEvent(bound, true);
        else if (perEvent) found = context -> new PerEvent(bound + 1, false);
        else found = WatermarkStrategy.forBoundedOutOfOrderness(Duration.ofMillis(bound));
        found = found.withTimestampAssigner((event, before) -> event.timestamp());
        return idleness < 0 ? found : found.withIdleness(Duration.ofMillis(idleness));
    }

    static void tick(List<Timers> timers, long at) throws Exception {
        CLOCK.now = at;
        for (Timers each : timers) if (each.tick != null) each.tick.onProcessingTime(at);
    }

    public static void main(String[] arguments) throws Exception {
        Scanner in = new Scanner(System.in);
        long interval = in.nextLong(), start = in.nextLong(), end = in.nextLong();
        int subtasks = in.nextInt();
        StatusWatermarkValve valve = new StatusWatermarkValve(subtasks);
        Output operator = new Output() {
            @Override public void emitWatermark(org.apache.flink.streaming.api.watermark.Watermark watermark) {
                System.out.println(consumed + " " + CLOCK.now + " W " + watermark.getTimestamp());
            }
            @Override public void emitWatermarkStatus(WatermarkStatus status) {
                System.out.println(consumed + " " + CLOCK.now + (status.isIdle() ? " I 0" : " A 0"));
            }
        };
        List<Timers> timers = new ArrayList<>();
        List<ReaderOutput<Event>> mains = new ArrayList<>();
        Map<Integer, SourceOutput<Event>> outputs = new HashMap<>();
        CLOCK.now = start;
        for (int index = 0; index < subtasks; index++) {
            String kind = in.next();
            long bound = in.nextLong();
            boolean perEvent = in.next().equals("per_event");
            long idleness = in.nextLong();
            int partitions = in.nextInt();
            final int channel = index;
            Timers own = new Timers();
            timers.add(own);
            TimestampsAndWatermarks<Event> logic = TimestampsAndWatermarks.createProgressiveEventTimeLogic(
                strategy(kind, bound, perEvent, idleness), new UnregisteredMetricsGroup(), own, interval, CLOCK, CLOCK,
                UnregisteredMetricGroups.createUnregisteredTaskMetricGroup().getIOMetricGroup());
            ReaderOutput<Event> main = logic.createMainOutput(new Output() {
                @Override public void emitWatermark(org.apache.flink.streaming.api.watermark.Watermark watermark) throws Exception {
                    valve.inputWatermark(watermark, channel, operator);
                }
                @Override public void emitWatermarkStatus(WatermarkStatus status) throws Exception {
                    valve.inputWatermarkStatus(status, channel, operator);
                }
            }, new TimestampsAndWatermarks.WatermarkUpdateListener() {
                @Override public void updateIdle(boolean idle) {}
                @Override public void updateCurrentEffectiveWatermark(long watermark) {}
                @Override public void updateCurrentSplitWatermark(String split, long watermark) {}
                @Override public void updateCurrentSplitIdle(String split, boolean idle) {}
                @Override public void splitFinished(String split) {}
            });
            mains.add(main);
            for (int n = 0; n < partitions; n++) {
                int partition = in.nextInt();
                outputs.put(partition, main.createOutputForSplit("" + partition));
            }
            if (interval > 0) logic.startPeriodicWatermarkEmits();
        }
        TreeMap<Long, List<int[]>> discovered = new TreeMap<>();  // by time: subtask and partition
        for (int left = in.nextInt(); left > 0; left--) {
            long at = in.nextLong();
            discovered.computeIfAbsent(at, key -> new ArrayList<>()).add(new int[] {in.nextInt(), in.nextInt()});
        }
        long next = interval > 0 ? start + interval : Long.MAX_VALUE;
        while (in.hasNext()) {
            int partition = in.nextInt();
            long arrival = in.nextLong(), timestamp = in.nextLong();
            boolean marker = in.nextInt() == 1;
            for (; next <= arrival; next += interval) {
                discover(discovered, next, mains, outputs);
                tick(timers, next);
            }
            discover(discovered, arrival, mains, outputs);
            CLOCK.now = arrival;
            consumed++;
            outputs.get(partition).collect(new Event(timestamp, marker), timestamp);
        }
        for (; next <= end; next += interval) {
            discover(discovered, next, mains, outputs);
            tick(timers, next);
        }
    }

    /** The splits that are assigned up to a time, as SourceOperator does it: it makes an output for each. */
    static void discover(
            TreeMap<Long, List<int[]>> discovered, long until, List<ReaderOutput<Event>> mains,
            Map<Integer, SourceOutput<Event>> outputs) {
        while (!discovered.isEmpty() && discovered.firstKey() <= until) {
            CLOCK.now = discovered.firstKey();
            for (int[] one : discovered.pollFirstEntry().getValue())
                outputs.put(one[1], mains.get(one[0]).createOutputForSplit("" + one[1]));
        }
    }
}
