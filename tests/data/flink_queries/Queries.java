import java.nio.file.Files;
import java.nio.file.Paths;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.types.Row;
import org.apache.flink.util.CloseableIterator;

/**
 * Queries FILE QUERY...: the tables, views and settings of a script, without its INSERTs; then each query on a local
 * cluster. Prints `ROW`, the query's number and the row's values, with tabs between them.
 */
public class Queries {
    public static void main(String[] arguments) throws Exception {
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment();
        environment.setParallelism(1);
        StreamTableEnvironment tables = StreamTableEnvironment.create(environment);
        for (String statement : new String(Files.readAllBytes(Paths.get(arguments[0])), "UTF-8").split(";")) {
            String plain = statement.replaceAll("(?m)^--.*$", "").strip();
            if (plain.startsWith("SET")) {
                String[] parts = plain.split("'");
                tables.getConfig().set(parts[1], parts[3]);
            } else if (!plain.isEmpty() && !plain.startsWith("INSERT")) {
                tables.executeSql(plain);
            }
        }
        for (int query = 1; query < arguments.length; query++) {
            try (CloseableIterator<Row> rows = tables.executeSql(arguments[query]).collect()) {
                while (rows.hasNext()) {
                    Row row = rows.next();
                    StringBuilder line = new StringBuilder("ROW\t").append(query - 1);
                    for (int place = 0; place < row.getArity(); place++) {
                        line.append('\t').append(row.getField(place));
                    }
                    System.out.println(line);
                }
            }
        }
        System.exit(0);
    }
}
