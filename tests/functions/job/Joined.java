package job;

import org.apache.hadoop.hive.ql.exec.UDF;
import org.apache.hadoop.io.LongWritable;
import org.apache.hadoop.io.Text;

/** Hive: one value or two, in Hadoop's types. */
public class Joined extends UDF {
    public Text evaluate(Text one) { return one; }
    public Text evaluate(Text one, LongWritable number) { return new Text(one + "/" + number); }
}
