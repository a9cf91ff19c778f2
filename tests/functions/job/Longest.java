package job;

import org.apache.spark.sql.Encoder;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.expressions.Aggregator;

/** Spark: the length of the longest text. */
public class Longest extends Aggregator<String, Integer, Integer> {
    public Integer zero() { return 0; }
    public Integer reduce(Integer longest, String text) { return Math.max(longest, text == null ? 0 : text.length()); }
    public Integer merge(Integer one, Integer other) { return Math.max(one, other); }
    public Integer finish(Integer longest) { return longest; }
    public Encoder<Integer> bufferEncoder() { return Encoders.INT(); }
    public Encoder<Integer> outputEncoder() { return Encoders.INT(); }
}
