package job;

import org.apache.flink.table.functions.ScalarFunction;

/** Table API: a text without spaces, in capitals. It refuses a number sign. */
public class Tidy extends ScalarFunction {
    public String eval(String text) {
        if (text != null && text.contains("#")) throw new IllegalStateException("no sign in " + text);
        return text == null ? "NONE" : text.trim().toUpperCase();
    }
}
