package job;

import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.types.Row;

/** DataStream over rows: the values in the order in which they came. */
public class Path implements AggregateFunction<Row, StringBuilder, String> {
    public StringBuilder createAccumulator() { return new StringBuilder(); }
    public StringBuilder add(Row one, StringBuilder path) { return path.append('>').append(one.getField("v")); }
    public String getResult(StringBuilder path) { return path.toString(); }
    public StringBuilder merge(StringBuilder one, StringBuilder other) { return one.append(other); }
}
