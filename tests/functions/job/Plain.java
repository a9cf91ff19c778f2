package job;

/** No function at all. */
public class Plain {}
