package job;

import org.apache.hadoop.hive.ql.exec.UDAF;
import org.apache.hadoop.hive.ql.exec.UDAFEvaluator;

/** Hive, the old way: a sum, by the type of its argument whole or not. */
public class OldSum extends UDAF {
    public static class OfWhole implements UDAFEvaluator {
        private long sum;
        public OfWhole() { init(); }
        public void init() { sum = 0; }
        public boolean iterate(Long value) { if (value != null) sum += value; return true; }
        public Long terminatePartial() { return sum; }
        public boolean merge(Long other) { sum += other; return true; }
        public Long terminate() { return sum; }
    }

    public static class OfDoubles implements UDAFEvaluator {
        private double sum;
        public OfDoubles() { init(); }
        public void init() { sum = 0; }
        public boolean iterate(Double value) { if (value != null) sum += value; return true; }
        public Double terminatePartial() { return sum; }
        public boolean merge(Double other) { sum += other; return true; }
        public Double terminate() { return sum; }
    }
}
