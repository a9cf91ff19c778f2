import org.apache.flink.api.connector.source.*;
import org.apache.flink.core.io.InputStatus;
import org.apache.flink.core.io.SimpleVersionedSerializer;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/** A bounded source whose reader number n hands out the steps that `Turns` gives to subtask n. */
public class TurnSource implements Source<Integer, TurnSource.None, Void> {
    public static class None implements SourceSplit, java.io.Serializable {
        public String splitId() { return "none"; }
    }

    public Boundedness getBoundedness() { return Boundedness.CONTINUOUS_UNBOUNDED; }

    public SplitEnumerator<None, Void> createEnumerator(SplitEnumeratorContext<None> c) {
        return new SplitEnumerator<None, Void>() {
            public void start() {}
            public void handleSplitRequest(int s, String h) {}
            public void addSplitsBack(List<None> l, int s) {}
            public void addReader(int subtask) {}
            public Void snapshotState(long id) { return null; }
            public void close() {}
        };
    }

    public SplitEnumerator<None, Void> restoreEnumerator(SplitEnumeratorContext<None> c, Void v) { return createEnumerator(c); }

    static class Nothing<T> implements SimpleVersionedSerializer<T> {
        public int getVersion() { return 1; }
        public byte[] serialize(T t) { return new byte[0]; }
        public T deserialize(int v, byte[] b) { return null; }
    }

    public SimpleVersionedSerializer<None> getSplitSerializer() { return new Nothing<>(); }
    public SimpleVersionedSerializer<Void> getEnumeratorCheckpointSerializer() { return new Nothing<>(); }

    public SourceReader<Integer, None> createReader(SourceReaderContext c) {
        final int me = c.getIndexOfSubtask();
        return new SourceReader<Integer, None>() {
            public void start() {}
            public InputStatus pollNext(ReaderOutput<Integer> out) {
                Turns.Step step = Turns.waiting.get(me).poll();
                if (step != null) {
                    ScriptOperator.step[me] = step;
                    out.collect(step.number);
                    return InputStatus.MORE_AVAILABLE;
                }
                return Turns.ended[me] ? InputStatus.END_OF_INPUT : InputStatus.NOTHING_AVAILABLE;
            }
            public List<None> snapshotState(long id) { return Collections.emptyList(); }
            public CompletableFuture<Void> isAvailable() { return Turns.availability(me); }
            public void addSplits(List<None> l) {}
            public void notifyNoMoreSplits() {}
            public void close() {}
        };
    }
}
