package job;

/** Cannot be made without an argument. */
public class Needy extends Median {
    public Needy(int size) {}
}
