package job;

import org.apache.hadoop.hive.ql.exec.UDFArgumentException;
import org.apache.hadoop.hive.ql.exec.UDFArgumentLengthException;
import org.apache.hadoop.hive.ql.metadata.HiveException;
import org.apache.hadoop.hive.ql.udf.generic.GenericUDF;
import org.apache.hadoop.hive.serde2.objectinspector.ObjectInspector;
import org.apache.hadoop.hive.serde2.objectinspector.primitive.PrimitiveObjectInspectorFactory;
import org.apache.hadoop.hive.serde2.objectinspector.primitive.PrimitiveObjectInspectorUtils;
import org.apache.hadoop.hive.serde2.objectinspector.PrimitiveObjectInspector;
import org.apache.hadoop.io.Text;

/** Hive: a value of any type in capitals, so many times. It gives the same Text each time. */
public class Shout extends GenericUDF {
    private PrimitiveObjectInspector word;
    private PrimitiveObjectInspector times;
    private final Text given = new Text();

    public ObjectInspector initialize(ObjectInspector[] arguments) throws UDFArgumentException {
        if (arguments.length != 2) throw new UDFArgumentLengthException("shout takes a value and a number");
        word = (PrimitiveObjectInspector) arguments[0];
        times = (PrimitiveObjectInspector) arguments[1];
        return PrimitiveObjectInspectorFactory.writableStringObjectInspector;
    }

    public Object evaluate(DeferredObject[] arguments) throws HiveException {
        Object value = arguments[0].get();
        if (value == null) return null;
        String text = PrimitiveObjectInspectorUtils.getString(value, word).trim().toUpperCase();
        if (text.equals("#")) throw new HiveException("no shouting of #");
        given.set(text.repeat(PrimitiveObjectInspectorUtils.getInt(arguments[1].get(), times)));
        return given;
    }

    public String getDisplayString(String[] children) { return "shout"; }
}
