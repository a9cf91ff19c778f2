package job;

import org.apache.flink.table.functions.AggregateFunction;

/** Table API: a weighted mean. */
public class Weighted extends AggregateFunction<Double, Weighted.Sums> {
    public static class Sums { public double sum; public long weight; }
    public Sums createAccumulator() { return new Sums(); }
    public void accumulate(Sums sums, Double value, Long weight) {
        if (value != null && weight != null) { sums.sum += value * weight; sums.weight += weight; }
    }
    public Double getValue(Sums sums) { return sums.weight == 0 ? null : sums.sum / sums.weight; }
}
