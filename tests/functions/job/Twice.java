package job;

import org.apache.spark.sql.api.java.UDF1;

/** Spark: twice the number. */
public class Twice implements UDF1<Long, Long> {
    public Long call(Long number) { return number == null ? null : 2 * number; }
}
