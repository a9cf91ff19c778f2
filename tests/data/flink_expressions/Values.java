import java.io.File;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.ProcessFunction;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.types.Row;
import org.apache.flink.types.RowKind;
import org.apache.flink.util.Collector;

/**
 * Values IN OUT: the values of expressions in Flink SQL, over a table of values, on a local cluster.
 *
 * IN holds `zones`, `columns` (name, Flink's type), `rows` (each value as text that Flink casts to the column's type),
 * `scalars`, `aggregates`, and `zoned`: those that each zone may change. OUT gets for each expression and zone its type, and a value for each row, or for each
 * group of the column `g`; or the first line of the planner's or the job's error.
 */
public class Values {

    private static final int TOGETHER = 16;
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        JsonNode in = JSON.readTree(new File(arguments[0]));
        List<Map<String, Object>> found = new ArrayList<>();
        try (MiniCluster cluster = cluster()) {
            for (JsonNode zone : in.get("zones")) {
                Tables tables = new Tables(cluster, zone.asText());
                createValues(tables.sql, in);
                boolean isFirst = zone == in.get("zones").get(0);
                for (String kind : List.of("zoned", "scalars", "aggregates").subList(0, isFirst ? 3 : 1)) {
                    List<String> expressions = new ArrayList<>();
                    for (JsonNode expression : in.get(kind)) {
                        expressions.add(expression.asText());
                        if (expressions.size() == TOGETHER) {
                            found.addAll(evaluated(tables, expressions, kind.equals("aggregates"), zone.asText(), in));
                            expressions = new ArrayList<>();
                        }
                    }
                    found.addAll(evaluated(tables, expressions, kind.equals("aggregates"), zone.asText(), in));
                }
            }
        }
        JSON.writeValue(new File(arguments[1]), found);
        System.exit(0);
    }

    /** The view `vals`: behind a stream, so that the planner cannot compute with the texts of the values. */
    private static void createValues(StreamTableEnvironment tables, JsonNode in) {
        StringBuilder names = new StringBuilder("rid"), casts = new StringBuilder("rid"), rows = new StringBuilder();
        in.get("columns").fields().forEachRemaining(column -> {
            names.append(", `").append(column.getKey()).append('`');
            String type = column.getValue().asText();
            boolean isBuilt = type.startsWith("ROW") || type.startsWith("ARRAY") || type.startsWith("MAP");
            String name = "`" + column.getKey() + "`";
            casts.append(", ").append(isBuilt ? name : "CAST(" + name + " AS " + type + ") AS " + name);
        });
        int rid = 0;
        for (JsonNode row : in.get("rows")) {
            rows.append(rid == 0 ? "(" : ", (").append(rid++);
            in.get("columns").fields().forEachRemaining(column -> {
                JsonNode value = row.get(column.getKey());
                String type = column.getValue().asText();
                boolean isBuilt = type.startsWith("ROW") || type.startsWith("ARRAY") || type.startsWith("MAP");
                String text = value == null || value.isNull() ? null : value.asText();
                rows.append(", ").append(
                        text == null ? "CAST(NULL AS " + (isBuilt ? type : "STRING") + ")"
                                : isBuilt ? "CAST(" + text + " AS " + type + ")"
                                        : "CAST('" + text.replace("'", "''") + "' AS STRING)");
            });
            rows.append(')');
        }
        DataStream<Row> stream = tables.toDataStream(tables.sqlQuery(
                "SELECT " + casts + " FROM (VALUES " + rows + ") AS t(" + names + ")"));
        tables.createTemporaryView("vals", stream);
    }

    /** What the expressions give: together in one job, else each one alone, and each row alone where that fails too. */
    private static List<Map<String, Object>> evaluated(
            Tables tables, List<String> expressions, boolean isAggregate, String zone, JsonNode in) {
        List<Map<String, Object>> results = new ArrayList<>(), typed = new ArrayList<>();
        List<String> accepted = new ArrayList<>();
        for (String expression : expressions) {
            Map<String, Object> result = new LinkedHashMap<>();
            result.put("sql", expression);
            result.put("zone", zone);
            results.add(result);
            try {
                result.put("type", tables.sql.sqlQuery(query(List.of(expression), isAggregate, "")).getResolvedSchema()
                        .getColumnDataTypes().get(1).getLogicalType().asSummaryString());
                result.put("values", new TreeMap<String, Object>());
                typed.add(result);
                accepted.add(expression);
            } catch (Exception error) {
                result.put("refused", reason(error));
            }
        }
        if (!accepted.isEmpty()) {
            collect(tables, accepted, typed, isAggregate, in);
        }
        return results;
    }

    private static void collect(
            Tables tables, List<String> expressions, List<Map<String, Object>> results, boolean isAggregate,
            JsonNode in) {
        try {
            put(tables.run(query(expressions, isAggregate, "")), results);
            return;
        } catch (Exception oneFails) {
            if (expressions.size() > 1) {
                int half = expressions.size() / 2;
                collect(tables, expressions.subList(0, half), results.subList(0, half), isAggregate, in);
                collect(tables, expressions.subList(half, expressions.size()),
                        results.subList(half, results.size()), isAggregate, in);
                return;
            }
        }
        LinkedHashSet<String> names = new LinkedHashSet<>();
        for (int rid = 0; rid < in.get("rows").size(); rid++) {
            names.add(isAggregate ? in.get("rows").get(rid).get("g").asText() : "" + rid);
        }
        for (String name : names) {
            String where = isAggregate ? " WHERE g = '" + name + "'" : " WHERE rid = " + name;
            try {
                put(tables.run(query(expressions, isAggregate, where)), results);
            } catch (Exception error) {
                values(results.get(0)).put(name, Map.of("error", reason(error)));
            }
        }
    }

    private static String query(List<String> expressions, boolean isAggregate, String where) {
        StringBuilder listed = new StringBuilder(isAggregate ? "g" : "rid");
        for (int place = 0; place < expressions.size(); place++) {
            listed.append(", ").append(expressions.get(place)).append(" AS v").append(place);
        }
        return "SELECT " + listed + " FROM vals" + where + (isAggregate ? " GROUP BY g" : "");
    }

    /** Keeps the last value of each row or group. */
    private static void put(List<Row> rows, List<Map<String, Object>> results) {
        for (Row row : rows) {
            if (row.getKind() == RowKind.INSERT || row.getKind() == RowKind.UPDATE_AFTER) {
                for (int place = 0; place < results.size(); place++) {
                    values(results.get(place)).put(String.valueOf(row.getField(0)), shown(row.getField(place + 1)));
                }
            }
        }
    }

    @SuppressWarnings("unchecked")
    private static Map<String, Object> values(Map<String, Object> result) {
        return (Map<String, Object>) result.get("values");
    }

    /** A table environment, and the cluster that runs its queries. */
    private static final class Tables {
        private static final List<Row> ROWS = Collections.synchronizedList(new ArrayList<>());
        private final StreamExecutionEnvironment environment;
        private final StreamTableEnvironment sql;
        private final MiniCluster cluster;

        private Tables(MiniCluster cluster, String zone) {
            Configuration configuration = new Configuration();
            configuration.setString("restart-strategy.type", "none");
            environment = StreamExecutionEnvironment.getExecutionEnvironment(configuration);
            environment.setParallelism(1);
            sql = StreamTableEnvironment.create(environment);
            sql.getConfig().set("table.local-time-zone", zone);
            this.cluster = cluster;
        }

        private List<Row> run(String query) throws Exception {
            ROWS.clear();
            sql.toChangelogStream(sql.sqlQuery(query)).process(new Kept());
            cluster.executeJobBlocking(environment.getStreamGraph().getJobGraph());
            return new ArrayList<>(ROWS);
        }
    }

    /** The sink: the cluster runs in this JVM. */
    private static final class Kept extends ProcessFunction<Row, String> {
        @Override
        public void processElement(Row row, Context context, Collector<String> out) {
            Tables.ROWS.add(row);
        }
    }

    private static MiniCluster cluster() throws Exception {
        Configuration configuration = new Configuration();
        configuration.setString("rest.port", "0");
        configuration.setString("rest.bind-port", "0");
        configuration.setString("taskmanager.memory.network.min", "64mb");
        configuration.setString("taskmanager.memory.network.max", "64mb");
        configuration.setString("taskmanager.memory.managed.size", "64mb");
        MiniCluster cluster = new MiniCluster(new MiniClusterConfiguration.Builder()
                .setNumTaskManagers(1).setNumSlotsPerTaskManager(2).setConfiguration(configuration).build());
        cluster.start();
        return cluster;
    }

    private static Object shown(Object value) {
        if (value == null) {
            return null;
        }
        if (value instanceof java.math.BigDecimal) {
            return ((java.math.BigDecimal) value).toPlainString();
        }
        if (value instanceof byte[]) {
            return java.util.HexFormat.of().formatHex((byte[]) value);
        }
        if (value instanceof Object[]) {
            List<Object> parts = new ArrayList<>();
            for (Object part : (Object[]) value) {
                parts.add(shown(part));
            }
            return parts;
        }
        return String.valueOf(value);
    }

    private static String reason(Throwable error) {
        Throwable root = error;
        while (root.getCause() != null) {
            root = root.getCause();
        }
        String text = String.valueOf(root.getMessage()).split("\n")[0];
        return root.getClass().getSimpleName() + ": " + text.substring(0, Math.min(160, text.length()));
    }
}
