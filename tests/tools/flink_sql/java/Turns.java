import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.TimeUnit;

/**
 * Whose turn it is. One step at a time goes to one source subtask; behind what the step caused the subtask sends a
 * latency marker, which stays behind it on every channel. When the marker comes out at the sink, the step is over.
 */
final class Turns {
    static final class Step {
        final int number, record;
        final long clock;
        Step(int number, int record, long clock) { this.number = number; this.record = record; this.clock = clock; }
    }

    static Job job;
    static List<Queue<Step>> waiting;
    static List<CompletableFuture<Void>> available;
    static volatile boolean[] ended;
    static volatile int consumed;
    static volatile SynchronousQueue<Long> over;

    static synchronized void start(Job of) {
        job = of;
        ended = new boolean[of.subtasks.length];
        consumed = 0;
        over = new SynchronousQueue<>();
        waiting = new ArrayList<>();
        available = new ArrayList<>();
        for (int i = 0; i < of.subtasks.length; i++) {
            waiting.add(new ConcurrentLinkedQueue<>());
            available.add(new CompletableFuture<>());
        }
    }

    /** Gives a subtask its step and waits until all that it caused is through. */
    static void take(int subtask, Step step) throws Exception {
        waiting.get(subtask).add(step);
        wake(subtask);
        Long done = over.poll(60, TimeUnit.SECONDS);
        if (done == null || done != step.number) throw new IllegalStateException("step " + step.number + " is not over, but " + done);
    }

    static synchronized void wake(int subtask) { available.get(subtask).complete(null); }

    static synchronized CompletableFuture<Void> availability(int subtask) {
        if (waiting.get(subtask).isEmpty() && !ended[subtask] && available.get(subtask).isDone()) available.set(subtask, new CompletableFuture<>());
        return available.get(subtask);
    }

    /** Ends the input of one subtask after the other: the active ones first. */
    static void end() throws Exception {
        for (boolean idle : new boolean[] {false, true})
            for (int i = 0; i < ended.length; i++) {
                if (ScriptOperator.idle[i] != idle || ended[i]) continue;
                ended[i] = true;
                wake(i);
                Long done = over.poll(60, TimeUnit.SECONDS);
                if (done == null || done != -1 - i) throw new IllegalStateException("the end of " + i + " is not over, but " + done);
            }
    }
}
