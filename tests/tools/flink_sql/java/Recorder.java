import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.RuntimeExecutionMode;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.CheckpointType;
import org.apache.flink.runtime.jobgraph.JobGraph;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.operators.AbstractStreamOperator;
import org.apache.flink.streaming.api.operators.OneInputStreamOperator;
import org.apache.flink.streaming.runtime.streamrecord.LatencyMarker;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.table.api.Table;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.types.Row;
import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.util.Iterator;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/** Recorder IN OUT: runs the jobs of IN, one JSON a line, on real Flink SQL; writes what came out, one JSON a line. */
public class Recorder {
    static final ObjectMapper JSON = new ObjectMapper();
    static ArrayNode found;

    /** The sink: notes each row with its kind and the number of records read, and says when a step is over. */
    public static class Sink extends AbstractStreamOperator<Integer> implements OneInputStreamOperator<Row, Integer> {
        @Override public void processElement(StreamRecord<Row> element) {
            Row row = element.getValue();
            ArrayNode out = found.addArray();
            out.add(row.getKind().shortString());
            out.add(Turns.consumed);
            for (int i = 0; i < row.getArity(); i++) {
                Object value = row.getField(i);
                if (value instanceof LocalDateTime) out.add(((LocalDateTime) value).toInstant(ZoneOffset.UTC).toEpochMilli());
                else if (value instanceof Long) out.add((Long) value);
                else out.add(String.valueOf(value));
            }
        }
        @Override public void processLatencyMarker(LatencyMarker marker) {
            try { Turns.over.offer(marker.getMarkedTime(), 30, TimeUnit.SECONDS); } catch (InterruptedException e) { Thread.currentThread().interrupt(); }
        }
    }

    static void run(MiniCluster cluster, JsonNode document) throws Exception {
        Job job = new Job(document);
        Turns.start(job);
        found = JSON.createArrayNode();
        Configuration conf = new Configuration();
        conf.setString("restart-strategy.type", "none");
        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment(conf);
        env.setRuntimeMode(RuntimeExecutionMode.STREAMING);
        env.setParallelism(1);
        env.setBufferTimeout(0);
        env.getConfig().setAutoWatermarkInterval(document.get("assigner_interval").asLong());
        StreamTableEnvironment t = StreamTableEnvironment.create(env);
        for (Iterator<Map.Entry<String, JsonNode>> i = document.get("settings").fields(); i.hasNext(); ) {
            Map.Entry<String, JsonNode> setting = i.next();
            t.getConfig().set(setting.getKey(), setting.getValue().asText());
        }
        t.executeSql(document.get("table").asText());
        Table query = t.sqlQuery(document.get("query").asText());
        ((ObjectNode) document).put("plan", query.explain().split("== Optimized Execution Plan ==")[1].trim());
        t.toChangelogStream(query).transform("sink", Types.INT, new Sink());
        JobGraph graph = env.getStreamGraph().getJobGraph();
        JobID id = cluster.submitJob(graph).get().getJobID();
        while (cluster.getExecutionGraph(id).get().getState() != org.apache.flink.api.common.JobStatus.RUNNING) Thread.sleep(5);
        int number = 0;
        for (JsonNode step : document.get("steps")) {
            String kind = step.get(0).asText();
            if (kind.equals("checkpoint")) {
                checkpoint(cluster, id);
            } else if (kind.equals("record")) {
                int record = step.get(1).asInt();
                Turns.take(job.subtaskOf(job.partitions[record]), new Turns.Step(++number, record, document.get("records").get(record).get(2).asLong()));
            } else {
                for (int s = 0; s < job.subtasks.length; s++) Turns.take(s, new Turns.Step(++number, -1, step.get(1).asLong()));
            }
        }
        if (document.get("flush").asBoolean()) {
            Turns.end();
        }
        try {
            cluster.cancelJob(id).get();
        } catch (java.util.concurrent.ExecutionException e) {
            if (!String.valueOf(e.getCause()).contains("FINISHED")) throw e;
        }
        cluster.requestJobResult(id).get(60, TimeUnit.SECONDS);
    }

    /**
     * A checkpoint between two records; tries again while some task is not running yet. None are enabled: Flink would
     * take some of its own.
     */
    static void checkpoint(MiniCluster cluster, JobID id) throws Exception {
        for (int attempt = 0; ; attempt++) {
            try {
                cluster.triggerCheckpoint(id, CheckpointType.FULL).get(30, TimeUnit.SECONDS);
                return;
            } catch (Exception e) {
                if (attempt > 200) throw e;
                Thread.sleep(20);
            }
        }
    }

    public static void main(String[] args) throws Exception {
        Configuration conf = new Configuration();
        conf.setString("rest.port", "0");
        conf.setString("rest.bind-port", "0");
        conf.setString("taskmanager.memory.network.min", "64mb");
        conf.setString("taskmanager.memory.network.max", "64mb");
        conf.setString("taskmanager.memory.managed.size", "256mb");
        MiniCluster cluster = new MiniCluster(new MiniClusterConfiguration.Builder().setNumTaskManagers(1).setNumSlotsPerTaskManager(4).setConfiguration(conf).build());
        cluster.start();
        String version = org.apache.flink.runtime.util.EnvironmentInformation.getVersion();
        try (PrintStream out = new PrintStream(args[1], "UTF-8")) {
            for (String line : Files.readAllLines(Paths.get(args[0]))) {
                JsonNode document = JSON.readTree(line);
                ObjectNode result = JSON.createObjectNode();
                result.put("name", document.get("name").asText()).put("flink_version", version);
                try {
                    run(cluster, document);
                    result.putNull("error");
                } catch (Throwable e) {
                    Throwable cause = e;
                    while (cause.getCause() != null) cause = cause.getCause();
                    result.put("error", cause.getClass().getName() + ": " + String.valueOf(cause.getMessage()).split("\n")[0]);
                    if (System.getenv("STACK") != null) e.printStackTrace();
                }
                result.set("rows", found);
                result.set("plan", document.get("plan"));
                out.println(JSON.writeValueAsString(result));
            }
        }
        System.exit(0);
    }
}
