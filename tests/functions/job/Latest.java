package job;

import org.apache.flink.api.common.functions.ReduceFunction;

/** DataStream: the reading with the largest event time. */
public class Latest implements ReduceFunction<Reading> {
    public Reading reduce(Reading one, Reading other) { return other.at >= one.at ? other : one; }
}
