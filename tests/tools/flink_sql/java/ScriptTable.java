import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.connector.ChangelogMode;
import org.apache.flink.table.connector.ProviderContext;
import org.apache.flink.table.connector.source.DataStreamScanProvider;
import org.apache.flink.table.connector.source.DynamicTableSource;
import org.apache.flink.table.connector.source.ScanTableSource;
import org.apache.flink.table.connector.source.abilities.SupportsWatermarkPushDown;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.factories.DynamicTableSourceFactory;
import org.apache.flink.table.runtime.typeutils.InternalTypeInfo;
import org.apache.flink.table.types.logical.RowType;
import java.util.Collections;
import java.util.Set;

/** The table `events` of a script: with the watermark in its source, as Kafka's table has it, or behind it, as a file's. */
public class ScriptTable implements ScanTableSource {
    final RowType type;
    WatermarkStrategy<RowData> strategy;

    ScriptTable(RowType type) { this.type = type; }

    static class WithWatermark extends ScriptTable implements SupportsWatermarkPushDown {
        WithWatermark(RowType type) { super(type); }
        public void applyWatermark(WatermarkStrategy<RowData> strategy) { this.strategy = strategy; }
        @Override public DynamicTableSource copy() {
            WithWatermark copy = new WithWatermark(type);
            copy.strategy = strategy;
            return copy;
        }
    }

    public ChangelogMode getChangelogMode() { return ChangelogMode.insertOnly(); }
    public DynamicTableSource copy() { return new ScriptTable(type); }
    public String asSummaryString() { return "script"; }

    public ScanRuntimeProvider getScanRuntimeProvider(ScanContext context) {
        return new DataStreamScanProvider() {
            public boolean isBounded() { return false; }
            public DataStream<RowData> produceDataStream(ProviderContext provider, StreamExecutionEnvironment env) {
                int subtasks = Turns.job.subtasks.length;
                return env.fromSource(new TurnSource(), WatermarkStrategy.noWatermarks(), "turns", Types.INT).setParallelism(subtasks)
                        .transform("script", InternalTypeInfo.of(type), new ScriptOperator(strategy)).setParallelism(subtasks);
            }
        };
    }

    abstract static class Factory implements DynamicTableSourceFactory {
        public Set<ConfigOption<?>> requiredOptions() { return Collections.emptySet(); }
        public Set<ConfigOption<?>> optionalOptions() { return Collections.emptySet(); }
        RowType type(Context c) { return (RowType) c.getPhysicalRowDataType().getLogicalType(); }
    }

    public static class PushedDown extends Factory {
        public String factoryIdentifier() { return "script"; }
        public DynamicTableSource createDynamicTableSource(Context c) { return new WithWatermark(type(c)); }
    }

    public static class Plain extends Factory {
        public String factoryIdentifier() { return "script-behind"; }
        public DynamicTableSource createDynamicTableSource(Context c) { return new ScriptTable(type(c)); }
    }
}
