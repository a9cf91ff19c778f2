import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.data.TimestampData;
import java.util.ArrayList;
import java.util.List;

/** One job of the input: `{name, settings, table, query, subtasks, clock_start, interval, records, steps, flush}`. */
final class Job {
    final JsonNode document;
    final int[][] subtasks;
    final long clockStart, interval;
    final List<RowData> rows = new ArrayList<>();
    final int[] partitions;

    Job(JsonNode document) {
        this.document = document;
        JsonNode given = document.get("subtasks");
        subtasks = new int[given.size()][];
        for (int i = 0; i < subtasks.length; i++) {
            subtasks[i] = new int[given.get(i).size()];
            for (int j = 0; j < subtasks[i].length; j++) subtasks[i][j] = given.get(i).get(j).asInt();
        }
        clockStart = document.get("clock_start").asLong();
        interval = document.get("interval").asLong();
        JsonNode records = document.get("records");
        partitions = new int[records.size()];
        for (int i = 0; i < partitions.length; i++) {
            JsonNode r = records.get(i);
            partitions[i] = r.get(0).asInt();
            rows.add(GenericRowData.of(StringData.fromString(r.get(3).asText()), TimestampData.fromEpochMillis(r.get(4).asLong()), r.get(5).asLong(), 1L << i));
        }
    }

    int subtaskOf(int partition) {
        for (int s = 0; s < subtasks.length; s++) for (int p : subtasks[s]) if (p == partition) return s;
        throw new IllegalArgumentException("partition " + partition);
    }
}
