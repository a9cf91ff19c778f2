package job;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.hadoop.hive.ql.metadata.HiveException;
import org.apache.hadoop.hive.ql.parse.SemanticException;
import org.apache.hadoop.hive.ql.udf.generic.AbstractGenericUDAFResolver;
import org.apache.hadoop.hive.ql.udf.generic.GenericUDAFEvaluator;
import org.apache.hadoop.hive.serde2.objectinspector.ObjectInspector;
import org.apache.hadoop.hive.serde2.objectinspector.ObjectInspectorFactory;
import org.apache.hadoop.hive.serde2.objectinspector.PrimitiveObjectInspector;
import org.apache.hadoop.hive.serde2.objectinspector.primitive.PrimitiveObjectInspectorFactory;
import org.apache.hadoop.hive.serde2.objectinspector.primitive.PrimitiveObjectInspectorUtils;
import org.apache.hadoop.hive.serde2.typeinfo.TypeInfo;

/** Hive: the largest value less the smallest, and the values in the order in which they came. It cannot be merged. */
public class Spread extends AbstractGenericUDAFResolver {
    public GenericUDAFEvaluator getEvaluator(TypeInfo[] types) throws SemanticException {
        if (types.length != 1) throw new SemanticException("spread takes one value");
        return new Evaluator();
    }

    public static class Evaluator extends GenericUDAFEvaluator {
        private PrimitiveObjectInspector input;

        public static class Seen extends AbstractAggregationBuffer { final List<Double> values = new ArrayList<>(); }

        public ObjectInspector init(Mode mode, ObjectInspector[] parameters) throws HiveException {
            super.init(mode, parameters);
            input = (PrimitiveObjectInspector) parameters[0];
            ObjectInspector number = PrimitiveObjectInspectorFactory.javaDoubleObjectInspector;
            return ObjectInspectorFactory.getStandardStructObjectInspector(
                Arrays.asList("range", "values"),
                Arrays.asList(number, ObjectInspectorFactory.getStandardListObjectInspector(number)));
        }

        public AggregationBuffer getNewAggregationBuffer() { return new Seen(); }
        public void reset(AggregationBuffer seen) { ((Seen) seen).values.clear(); }
        public void iterate(AggregationBuffer seen, Object[] given) {
            if (given[0] != null) ((Seen) seen).values.add(PrimitiveObjectInspectorUtils.getDouble(given[0], input));
        }
        public Object terminatePartial(AggregationBuffer seen) { throw new UnsupportedOperationException(); }
        public void merge(AggregationBuffer seen, Object other) { throw new UnsupportedOperationException(); }
        public Object terminate(AggregationBuffer seen) {
            List<Double> values = ((Seen) seen).values;
            double range = values.stream().max(Double::compare).get() - values.stream().min(Double::compare).get();
            return Arrays.asList(range, values);
        }
    }
}
