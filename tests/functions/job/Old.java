package job;

import org.apache.hadoop.hive.ql.exec.UDF;

/** Hive: a text backwards. */
public class Old extends UDF {
    public String evaluate(String text) { return text == null ? null : new StringBuilder(text).reverse().toString(); }
}
