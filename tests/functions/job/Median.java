package job;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.flink.api.common.functions.AggregateFunction;

/** DataStream: the median. It has no `merge`, as jobs whose windows never merge. */
public class Median implements AggregateFunction<Reading, List<Double>, Double> {
    public List<Double> createAccumulator() { return new ArrayList<>(); }
    public List<Double> add(Reading one, List<Double> all) { all.add(one.getValue()); return all; }
    public Double getResult(List<Double> all) {
        List<Double> sorted = new ArrayList<>(all);
        Collections.sort(sorted);
        int half = sorted.size() / 2;
        return sorted.size() % 2 == 1 ? sorted.get(half) : (sorted.get(half - 1) + sorted.get(half)) / 2;
    }
    public List<Double> merge(List<Double> one, List<Double> other) { throw new UnsupportedOperationException("no merge"); }
}
