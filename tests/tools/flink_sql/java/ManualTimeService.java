
import org.apache.flink.streaming.runtime.tasks.ProcessingTimeService;
import org.apache.flink.util.clock.Clock;
import org.apache.flink.util.clock.ManualClock;

import java.util.PriorityQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Delayed;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;

/**
 * Manually advanced processing time on top of Flink's own ManualClock. Glue: it stands in for the
 * task's SystemProcessingTimeService. Timers due at t fire, in time order, when time is advanced to >= t.
 */
public class ManualTimeService implements ProcessingTimeService {
    public final ManualClock clock;
    private final PriorityQueue<T> q = new PriorityQueue<>();
    private long seq = 0;

    public ManualTimeService(long startMs) {
        clock = new ManualClock(TimeUnit.MILLISECONDS.toNanos(startMs));
    }

    private class T implements ScheduledFuture<Object>, Comparable<Delayed> {
        long at, period, id;
        boolean cancelled;
        ProcessingTimeCallback cb;
        public long getDelay(TimeUnit u) { return u.convert(at - clock.absoluteTimeMillis(), TimeUnit.MILLISECONDS); }
        public int compareTo(Delayed o) {
            T b = (T) o;
            return at != b.at ? Long.compare(at, b.at) : Long.compare(id, b.id);
        }
        public boolean cancel(boolean b) { cancelled = true; return true; }
        public boolean isCancelled() { return cancelled; }
        public boolean isDone() { return false; }
        public Object get() { return null; }
        public Object get(long l, TimeUnit u) { return null; }
    }

    private T add(long at, long period, long id, ProcessingTimeCallback cb) {
        T t = new T();
        t.at = at; t.period = period; t.cb = cb; t.id = id;
        q.add(t);
        return t;
    }

    public Clock getClock() { return clock; }
    public long getCurrentProcessingTime() { return clock.absoluteTimeMillis(); }
    public ScheduledFuture<?> registerTimer(long ts, ProcessingTimeCallback cb) { return add(ts, 0, seq++, cb); }
    public ScheduledFuture<?> scheduleAtFixedRate(ProcessingTimeCallback cb, long initial, long period) {
        return add(getCurrentProcessingTime() + initial, period, seq++, cb);
    }
    public ScheduledFuture<?> scheduleWithFixedDelay(ProcessingTimeCallback cb, long initial, long period) {
        return add(getCurrentProcessingTime() + initial, period, seq++, cb);
    }
    public CompletableFuture<Void> quiesce() { return CompletableFuture.completedFuture(null); }

    private void setTo(long ms) {
        long d = ms - clock.absoluteTimeMillis();
        if (d > 0) clock.advanceTime(d, TimeUnit.MILLISECONDS);
    }

    public interface Hook { void at(long ms); }

    public void advanceTo(long ms, Hook hook) throws Exception {
        while (!q.isEmpty() && q.peek().at <= ms) {
            T t = q.poll();
            if (t.cancelled) continue;
            setTo(t.at);
            hook.at(t.at);
            t.cb.onProcessingTime(t.at);
            if (t.period > 0 && !t.cancelled) {
                t.at += t.period;
                q.add(t);
            }
        }
        setTo(ms);
        hook.at(clock.absoluteTimeMillis());
    }
}
