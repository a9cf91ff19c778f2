package job;

/** DataStream: refuses values above 50. */
public class Fragile extends Median {
    public java.util.List<Double> add(Reading one, java.util.List<Double> all) {
        if (one.getValue() > 50) throw new IllegalStateException("too much: " + one.getValue());
        return super.add(one, all);
    }
}
