package job;

/** A record as a Flink job has it: a POJO with public fields and one with a setter. */
public class Reading {
    public String sensor;
    public long at;
    private double value;

    public double getValue() { return value; }
    public void setValue(double value) { this.value = value; }
}
