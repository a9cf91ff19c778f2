import java.nio.file.*;
import java.util.*;
import org.apache.flink.api.common.functions.*;
import org.apache.flink.api.common.state.*;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.streaming.api.operators.*;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.streaming.util.KeyedOneInputStreamOperatorTestHarness;
import org.apache.flink.table.data.*;
import org.apache.flink.table.runtime.operators.deduplicate.*;
import org.apache.flink.table.runtime.typeutils.InternalTypeInfo;
import org.apache.flink.table.types.logical.*;

public class Record {
  static class Idiom extends RichFilterFunction<RowData> {
    final long ttl; final boolean reads; transient ValueState<Boolean> seen;
    Idiom(long ttl, boolean reads) { this.ttl = ttl; this.reads = reads; }
    @Override public void open(OpenContext c) {
      ValueStateDescriptor<Boolean> d = new ValueStateDescriptor<>("seen", Types.BOOLEAN);
      if (ttl > 0) d.enableTimeToLive(StateTtlConfig.newBuilder(java.time.Duration.ofMillis(ttl))
        .setUpdateType(reads ? StateTtlConfig.UpdateType.OnReadAndWrite : StateTtlConfig.UpdateType.OnCreateAndWrite)
        .setStateVisibility(StateTtlConfig.StateVisibility.NeverReturnExpired).build());
      seen = getRuntimeContext().getState(d);
    }
    @Override public boolean filter(RowData r) throws Exception {
      if (seen.value() != null) return false;
      seen.update(true);
      return true;
    }
  }
  public static void main(String[] a) throws Exception {
    for (String file : a) one(Paths.get(file));
  }
  static void one(Path path) throws Exception {
    List<String> lines = Files.readAllLines(path);
    String[] head = lines.get(0).split(" ");
    String kind = head[0]; long ttl = Long.parseLong(head[1]);
    InternalTypeInfo<RowData> type = InternalTypeInfo.ofFields(VarCharType.STRING_TYPE, new BigIntType(), new BigIntType());
    OneInputStreamOperator<RowData, RowData> op;
    switch (kind) {
      case "row_time": op = new KeyedProcessOperator<>(new RowTimeDeduplicateKeepFirstRowFunction(type, ttl, 2)); break;
      case "processing_time": op = new KeyedProcessOperator<>(new ProcTimeDeduplicateKeepFirstRowFunction(ttl)); break;
      case "keyed_state": op = new StreamFilter<>(new Idiom(ttl, false)); break;
      case "keyed_state_read": op = new StreamFilter<>(new Idiom(ttl, true)); break;
      default: throw new IllegalArgumentException(kind);
    }
    KeyedOneInputStreamOperatorTestHarness<String, RowData, RowData> h =
      new KeyedOneInputStreamOperatorTestHarness<>(op, r -> r.getString(0).toString(), Types.STRING);
    h.open();
    StringBuilder out = new StringBuilder();
    int taken = 0;
    for (String line : lines.subList(1, lines.size())) {
      String[] p = line.split(" ");
      switch (p[0]) {
        case "T": long t = Long.parseLong(p[1]); h.setProcessingTime(t); h.setStateTtlProcessingTime(t); break;
        case "R": h.processElement(new StreamRecord<>(GenericRowData.of(StringData.fromString(p[1]), Long.parseLong(p[2]), Long.parseLong(p[3])))); taken++; break;
        case "W": h.processWatermark(new Watermark(Long.parseLong(p[1]))); break;
      }
      Object o;
      while ((o = h.getOutput().poll()) != null)
        if (o instanceof StreamRecord) out.append(((RowData) ((StreamRecord<?>) o).getValue()).getLong(1)).append(' ').append(taken).append('\n');
    }
    Files.writeString(Paths.get(path.toString() + ".out"), out.toString());
    h.close();
  }
}
