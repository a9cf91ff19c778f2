package rewindow.functions;

import java.io.File;
import java.io.Serializable;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.lang.reflect.TypeVariable;
import java.net.URL;
import java.net.URLClassLoader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.commons.lang3.reflect.TypeUtils;
import org.apache.hadoop.hive.common.type.HiveDecimal;
import org.apache.hadoop.hive.common.type.HiveBaseChar;
import org.apache.hadoop.hive.ql.exec.DefaultUDFMethodResolver;
import org.apache.hadoop.hive.ql.exec.HiveFunctionRegistryUtils;
import org.apache.hadoop.hive.ql.exec.SparkDefaultUDFMethodResolver;
import org.apache.hadoop.hive.ql.exec.UDAF;
import org.apache.hadoop.hive.ql.exec.UDF;
import org.apache.hadoop.hive.ql.exec.UDFMethodResolver;
import org.apache.hadoop.hive.ql.udf.generic.GenericUDAFEvaluator;
import org.apache.hadoop.hive.ql.udf.generic.GenericUDAFResolver;
import org.apache.hadoop.hive.ql.udf.generic.GenericUDAFResolver2;
import org.apache.hadoop.hive.ql.udf.generic.GenericUDF;
import org.apache.hadoop.hive.ql.udf.generic.GenericUDFUtils;
import org.apache.hadoop.hive.ql.udf.generic.SimpleGenericUDAFParameterInfo;
import org.apache.hadoop.hive.ql.udf.generic.SparkGenericUDAFBridge;
import org.apache.hadoop.hive.serde2.objectinspector.ObjectInspector;
import org.apache.hadoop.hive.serde2.objectinspector.ObjectInspectorFactory;
import org.apache.hadoop.hive.serde2.objectinspector.ObjectInspectorUtils;
import org.apache.hadoop.hive.serde2.objectinspector.primitive.PrimitiveObjectInspectorUtils;
import org.apache.hadoop.hive.serde2.typeinfo.TypeInfo;
import org.apache.hadoop.hive.serde2.typeinfo.TypeInfoUtils;
import org.apache.spark.SparkFiles;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.api.java.*;
import org.apache.spark.sql.catalyst.analysis.UnresolvedExtractValue;
import org.apache.spark.sql.catalyst.analysis.UnresolvedFunction$;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.If;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.expressions.Aggregator;
import org.apache.spark.sql.types.*;

/**
 * One class of the live job, called as it is: for each record, or for all records of a window in the log's order.
 *
 * Spark's own compiler (Janino) compiles this file: raw types, no lambdas. The user's jars have a class loader of their
 * own by content, so that a changed jar is never mixed up with the one before. Flink's interfaces are called by
 * reflection: this class needs none of Flink's jars itself.
 */
public class LiveFunction implements Serializable,
    UDF1, UDF2, UDF3, UDF4, UDF5, UDF6, UDF7, UDF8 {

    static final String FLINK = "org.apache.flink.";
    static final String HIVE = "org.apache.hadoop.hive.ql.";
    static final String[][] KINDS = {
        // the kind, the class or interface that makes it, the number of its type parameter that is the result
        {"flink_aggregate", FLINK + "api.common.functions.AggregateFunction", "2"},
        {"flink_reduce", FLINK + "api.common.functions.ReduceFunction", "0"},
        {"table_aggregate", FLINK + "table.functions.AggregateFunction", "0"},
        {"table_scalar", FLINK + "table.functions.ScalarFunction", ""},
        {"spark_aggregate", "org.apache.spark.sql.expressions.Aggregator", "2"},
        {"spark_row", "org.apache.spark.sql.api.java.UDF", ""},
        {"hive_row", HIVE + "exec.UDF", ""},
        {"hive_row", HIVE + "udf.generic.GenericUDF", ""},
        {"hive_aggregate", HIVE + "exec.UDAF", ""},
        {"hive_aggregate", HIVE + "udf.generic.GenericUDAFResolver", ""},
    };
    static final Map LOADERS = new HashMap();

    final String name; final String className; final String kind; final String[] files; final DataType type;
    transient Object instance; transient Map methods; transient Map shapes;

    public LiveFunction(String name, String className, String kind, List files, DataType type) {
        this.name = name; this.className = className; this.kind = kind; this.files = texts(files); this.type = type;
    }

    static String[] texts(List of) { return (String[]) of.toArray(new String[0]); }

    // ---- what a class is -----------------------------------------------------------------------------------------

    /** "kind|DDL of the result, if the class says it|numbers of arguments, of a row function". Empty: it cannot be called. */
    public static String describe(List paths, String className) throws Exception {
        Class found = Class.forName(className, true, loader(texts(paths)));
        for (int i = 0; i < KINDS.length; i++) {
            Class base = ancestor(found, KINDS[i][1]);
            if (base == null) continue;
            if (Modifier.isAbstract(found.getModifiers())) return "abstract";
            try { constructor(found); } catch (NoSuchMethodException missing) { return "no_constructor"; }
            String result = ddl(resultOf(found, base, KINDS[i]));
            return KINDS[i][0] + "|" + (result == null ? "" : result) + "|" + arguments(found, base, KINDS[i][0]);
        }
        return "";
    }

    static String arguments(Class found, Class base, String kind) {
        if (kind.equals("spark_row")) return base.getName().substring(base.getName().length() - 1);
        if (!kind.equals("table_scalar")) return "";
        java.util.TreeSet counts = new java.util.TreeSet();
        List all = named(found, "eval");
        for (int i = 0; i < all.size(); i++) counts.add(Integer.valueOf(((Method) all.get(i)).getParameterTypes().length));
        return counts.toString().replaceAll("[^0-9,]", "");
    }

    static java.lang.reflect.Type resultOf(Class found, Class base, String[] kind) {
        if (kind[0].equals("table_scalar") || kind[0].equals("hive_row")) {
            List all = named(found, kind[0].equals("hive_row") ? "evaluate" : "eval");
            java.util.Set types = new java.util.HashSet();
            for (int i = 0; i < all.size(); i++) types.add(((Method) all.get(i)).getGenericReturnType());
            return types.size() == 1 ? (java.lang.reflect.Type) types.iterator().next() : null;
        }
        if (kind[0].equals("hive_aggregate")) return null;
        TypeVariable[] variables = base.getTypeParameters();
        int at = kind[2].length() == 0 ? variables.length - 1 : Integer.parseInt(kind[2]);
        Object given = TypeUtils.getTypeArguments(found, base).get(variables[at]);
        return given instanceof java.lang.reflect.Type ? (java.lang.reflect.Type) given : null;
    }

    static Class ancestor(Class from, String name) {
        for (Class c = from; c != null; c = c.getSuperclass()) {
            if (isNamed(c, name)) return c;
            Class[] interfaces = c.getInterfaces();
            for (int i = 0; i < interfaces.length; i++) {
                Class found = ancestor(interfaces[i], name);
                if (found != null) return found;
            }
        }
        return null;
    }

    static boolean isNamed(Class c, String name) {
        if (!name.endsWith(".UDF") || name.startsWith("org.apache.hadoop")) return c.getName().equals(name);
        return c.getName().matches(name.replace(".", "[.]") + "[1-8]");
    }

    static String ddl(java.lang.reflect.Type of) {
        if (!(of instanceof Class)) return null;
        Class c = (Class) of;
        if (c == String.class) return "STRING";
        if (c == Long.class || c == long.class) return "BIGINT";
        if (c == Integer.class || c == int.class) return "INT";
        if (c == Short.class || c == short.class) return "SMALLINT";
        if (c == Byte.class || c == byte.class) return "TINYINT";
        if (c == Double.class || c == double.class) return "DOUBLE";
        if (c == Float.class || c == float.class) return "FLOAT";
        if (c == Boolean.class || c == boolean.class) return "BOOLEAN";
        if (c == byte[].class) return "BINARY";
        if (c == java.time.Instant.class || c == java.sql.Timestamp.class) return "TIMESTAMP";
        if (c == java.time.LocalDateTime.class) return "TIMESTAMP_NTZ";
        if (c == java.time.LocalDate.class || c == java.sql.Date.class) return "DATE";
        PrimitiveObjectInspectorUtils.PrimitiveTypeEntry hives = PrimitiveObjectInspectorUtils.getTypeEntryFromPrimitiveWritableClass(c);
        return hives == null || hives.typeName.equals("decimal") ? null : hives.typeName.toUpperCase();
    }

    // ---- the user's classes --------------------------------------------------------------------------------------

    static synchronized ClassLoader loader(String[] paths) throws Exception {
        String key = Arrays.asList(paths).toString();
        ClassLoader known = (ClassLoader) LOADERS.get(key);
        if (known != null) return known;
        URL[] urls = new URL[paths.length];
        for (int i = 0; i < paths.length; i++) urls[i] = new File(paths[i]).toURI().toURL();
        ClassLoader made = new URLClassLoader(urls, LiveFunction.class.getClassLoader());
        LOADERS.put(key, made);
        return made;
    }

    static Constructor constructor(Class of) throws NoSuchMethodException {
        Constructor found = of.getDeclaredConstructor(new Class[0]);
        found.setAccessible(true);
        return found;
    }

    Object created() throws Exception {
        String[] paths = new String[files.length];
        for (int i = 0; i < files.length; i++) paths[i] = SparkFiles.get(files[i]);
        return constructor(Class.forName(className, true, loader(paths))).newInstance(new Object[0]);
    }

    Object instance() throws Exception {
        if (instance != null) return instance;
        Object made = created();
        Class found = made.getClass();
        if (kind.startsWith("table_")) {
            Class context = Class.forName(FLINK + "table.functions.FunctionContext", true, found.getClassLoader());
            Constructor[] all = context.getConstructors();
            for (int i = 0; i < all.length; i++)
                if (all[i].getParameterTypes().length == 1)
                    found.getMethod("open", new Class[] {context}).invoke(made, new Object[] {all[i].newInstance(new Object[] {null})});
        }
        methods = new HashMap(); shapes = new HashMap();
        instance = made;
        return made;
    }

    static List named(Class in, String name) {
        List found = new ArrayList();
        Method[] all = in.getMethods();
        for (int i = 0; i < all.length; i++)
            if (all[i].getName().equals(name) && !all[i].isBridge()) { all[i].setAccessible(true); found.add(all[i]); }
        return found;
    }

    /** The method of this name for these values: by their number, then by what each parameter can take. */
    Method method(String named, Object[] values) throws Exception {
        StringBuilder shape = new StringBuilder(named);
        for (int i = 0; i < values.length; i++) shape.append('|').append(values[i] == null ? "" : values[i].getClass().getName());
        Method known = (Method) methods.get(shape.toString());
        if (known != null) return known;
        List all = named(instance().getClass(), named);
        Method best = null; int bestScore = -1; String taken = "";
        for (int m = 0; m < all.size(); m++) {
            Method one = (Method) all.get(m);
            Class[] p = one.getParameterTypes();
            taken = taken + (taken.length() == 0 ? "" : " or ") + p.length;
            if (p.length != values.length) continue;
            int score = 0;
            for (int i = 0; i < p.length && score >= 0; i++) score = fits(values[i], p[i]) < 0 ? -1 : score + fits(values[i], p[i]);
            if (score > bestScore) { best = one; bestScore = score; }
        }
        if (best == null) throw new IllegalArgumentException(
            "no method " + named + " takes these " + values.length + " values" + (taken.length() == 0 ? "" : " (those that exist take " + taken + ")"));
        methods.put(shape.toString(), best);
        return best;
    }

    static int fits(Object value, Class to) {
        if (value == null) return to.isPrimitive() ? -1 : 1;
        if (to == value.getClass() || boxed(to) == value.getClass()) return 3;
        if (to.isInstance(value)) return 2;
        if (value instanceof Number) return Number.class.isAssignableFrom(boxed(to)) && wide(boxed(to)) >= wide(value.getClass()) ? 1 : -1;
        if (value instanceof Boolean || value instanceof String) return -1;
        return 0;
    }

    static int wide(Class c) {
        if (c == Byte.class) return 1;
        if (c == Short.class) return 2;
        if (c == Integer.class) return 3;
        if (c == Long.class) return 4;
        if (c == Float.class) return 5;
        if (c == Double.class) return 6;
        return 7;
    }

    static Class boxed(Class c) {
        if (!c.isPrimitive()) return c;
        if (c == long.class) return Long.class;
        if (c == int.class) return Integer.class;
        if (c == double.class) return Double.class;
        if (c == float.class) return Float.class;
        if (c == short.class) return Short.class;
        if (c == byte.class) return Byte.class;
        if (c == boolean.class) return Boolean.class;
        return c;
    }

    // ---- from Spark to the class ---------------------------------------------------------------------------------

    /** A value of Spark's as the class wants it. `to` null: as Flink's tables have it. */
    Object in(Object value, Class to) throws Exception {
        if (to != null) to = boxed(to);
        else if (kind.startsWith("hive_")) value = hives(value);
        if (value == null || (to != null && to.isInstance(value) && !(value instanceof Row))) return value;
        if (value instanceof Row) return record((Row) value, to == null || to == Object.class ? rowClass() : to);
        if (value instanceof scala.collection.Seq) {
            List list = new ArrayList();
            scala.collection.Iterator each = ((scala.collection.Seq) value).iterator();
            while (each.hasNext()) list.add(in(each.next(), to != null && to.isArray() ? to.getComponentType() : null));
            if (to == null || !to.isArray()) return list;
            Object array = java.lang.reflect.Array.newInstance(to.getComponentType(), list.size());
            for (int i = 0; i < list.size(); i++) java.lang.reflect.Array.set(array, i, list.get(i));
            return array;
        }
        if (value instanceof scala.collection.Map) {
            Map map = new LinkedHashMap();
            scala.collection.Iterator each = ((scala.collection.Map) value).iterator();
            while (each.hasNext()) { scala.Tuple2 pair = (scala.Tuple2) each.next(); map.put(in(pair._1(), null), in(pair._2(), null)); }
            return map;
        }
        if (to == null) return value;
        if (value instanceof Number) {
            Number number = (Number) value;
            if (to == Double.class) return Double.valueOf(number.doubleValue());
            if (to == Float.class && !(value instanceof Double)) return Float.valueOf(number.floatValue());
            if (!(value instanceof Double) && !(value instanceof Float) && !(value instanceof java.math.BigDecimal)) {
                if (to == Long.class) return Long.valueOf(number.longValue());
                if (to == Integer.class) return Integer.valueOf(Math.toIntExact(number.longValue()));
                if (to == java.math.BigDecimal.class) return java.math.BigDecimal.valueOf(number.longValue());
            }
        }
        java.time.Instant instant = value instanceof java.sql.Timestamp ? ((java.sql.Timestamp) value).toInstant()
            : value instanceof java.time.Instant ? (java.time.Instant) value : null;
        if (instant != null) {
            if (to == Long.class) return Long.valueOf(instant.toEpochMilli());
            if (to == java.time.Instant.class) return instant;
            if (to == java.sql.Timestamp.class) return java.sql.Timestamp.from(instant);
            if (to == java.time.LocalDateTime.class) return java.time.LocalDateTime.ofInstant(instant, java.time.ZoneOffset.UTC);
        }
        java.time.LocalDate day = value instanceof java.sql.Date ? ((java.sql.Date) value).toLocalDate()
            : value instanceof java.time.LocalDate ? (java.time.LocalDate) value : null;
        if (day != null) {
            if (to == java.time.LocalDate.class) return day;
            if (to == java.sql.Date.class) return java.sql.Date.valueOf(day);
            if (to == Integer.class) return Integer.valueOf((int) day.toEpochDay());
        }
        if (to == Object.class) return value;
        throw new IllegalArgumentException("a value of type " + value.getClass().getSimpleName() + " is no " + to.getName());
    }

    Class rowClass() throws Exception {
        try { return Class.forName(FLINK + "types.Row", true, instance().getClass().getClassLoader()); }
        catch (ClassNotFoundException missing) { return Row.class; }
    }

    /** A record: Flink's Row, a tuple, a Java record, or an object with a field or a setter for each column. */
    Object record(Row row, Class to) throws Exception {
        if (to == Row.class) return row;
        String[] names = row.schema().fieldNames();
        if (to.getName().equals(FLINK + "types.Row")) {
            Object kindOfRow = Enum.valueOf(Class.forName(FLINK + "types.RowKind", true, to.getClassLoader()), "INSERT");
            LinkedHashMap places = new LinkedHashMap();
            Object[] values = new Object[names.length];
            for (int i = 0; i < names.length; i++) { places.put(names[i], Integer.valueOf(i)); values[i] = in(row.get(i), null); }
            Class utils = Class.forName(FLINK + "types.RowUtils", true, to.getClassLoader());
            return ((Method) named(utils, "createRowWithNamedPositions").get(0)).invoke(null, new Object[] {kindOfRow, values, places});
        }
        if (ancestor(to, FLINK + "api.java.tuple.Tuple") != null) {
            if (Modifier.isAbstract(to.getModifiers()))
                to = Class.forName(FLINK + "api.java.tuple.Tuple" + names.length, true, to.getClassLoader());
            Object made = constructor(to).newInstance(new Object[0]);
            Method set = to.getMethod("setField", new Class[] {Object.class, int.class});
            for (int i = 0; i < names.length; i++) set.invoke(made, new Object[] {in(row.get(i), null), Integer.valueOf(i)});
            return made;
        }
        if (names.length == 1 && isValue(to)) return in(row.get(0), to);
        if (to.isRecord()) return ofRecord(row, to);
        Object made;
        try { made = constructor(to).newInstance(new Object[0]); }
        catch (NoSuchMethodException missing) { throw new IllegalArgumentException(to.getName() + " has no constructor without arguments"); }
        for (int i = 0; i < names.length; i++) put(made, names[i], row.get(i));
        return made;
    }

    Object ofRecord(Row row, Class to) throws Exception {
        java.lang.reflect.RecordComponent[] parts = to.getRecordComponents();
        Class[] types = new Class[parts.length]; Object[] values = new Object[parts.length];
        for (int i = 0; i < parts.length; i++) {
            types[i] = parts[i].getType();
            Object value = row.get(row.fieldIndex(parts[i].getName()));
            refuseNull(value, types[i], parts[i].getName(), to);
            values[i] = in(value, types[i]);
        }
        Constructor made = to.getDeclaredConstructor(types);
        made.setAccessible(true);
        return made.newInstance(values);
    }

    void put(Object into, String name, Object value) throws Exception {
        Object place = place(into.getClass(), name);
        if (place instanceof Field) {
            Field field = (Field) place;
            refuseNull(value, field.getType(), name, into.getClass());
            field.set(into, in(value, field.getType()));
        } else {
            Method setter = (Method) place;
            refuseNull(value, setter.getParameterTypes()[0], name, into.getClass());
            setter.invoke(into, new Object[] {in(value, setter.getParameterTypes()[0])});
        }
    }

    Object place(Class of, String name) throws Exception {
        instance();
        Object known = shapes.get(of.getName() + "#" + name);
        if (known != null) return known;
        Object found = null;
        List setters = named(of, "set" + name.substring(0, 1).toUpperCase() + name.substring(1));
        for (int i = 0; i < setters.size(); i++)
            if (((Method) setters.get(i)).getParameterTypes().length == 1) found = setters.get(i);
        for (Class c = of; c != null && found == null; c = c.getSuperclass()) {
            try { Field field = c.getDeclaredField(name); field.setAccessible(true); found = field; }
            catch (NoSuchFieldException next) { continue; }
        }
        if (found == null) throw new IllegalArgumentException(of.getName() + " has no field `" + name + "`");
        shapes.put(of.getName() + "#" + name, found);
        return found;
    }

    static void refuseNull(Object value, Class to, String name, Class of) {
        if (value == null && to.isPrimitive()) throw new IllegalArgumentException(
            "`" + name + "` is null, and " + of.getName() + " has a " + to.getName() + " there, which cannot be null");
    }

    static boolean isValue(Class c) {
        return c == Object.class || c == String.class || Number.class.isAssignableFrom(boxed(c)) || boxed(c) == Boolean.class || c == byte[].class
            || c.getName().startsWith("java.time.") || c.getName().startsWith("java.sql.") || Collection.class.isAssignableFrom(c) || Map.class.isAssignableFrom(c);
    }

    // ---- from the class to Spark ---------------------------------------------------------------------------------

    Object out(Object value, DataType to) throws Exception {
        if (value == null) return null;
        if (value instanceof HiveDecimal) value = ((HiveDecimal) value).bigDecimalValue();
        if (value instanceof HiveBaseChar) value = ((HiveBaseChar) value).getValue();
        if (value.getClass().isArray() && !(value instanceof byte[])) {
            List list = new ArrayList();
            for (int i = 0; i < java.lang.reflect.Array.getLength(value); i++) list.add(java.lang.reflect.Array.get(value, i));
            value = list;
        }
        if (to instanceof ArrayType) {
            if (!(value instanceof Collection)) throw wrong(value, to);
            Object[] values = ((Collection) value).toArray();
            for (int i = 0; i < values.length; i++) values[i] = out(values[i], ((ArrayType) to).elementType());
            return scala.jdk.javaapi.CollectionConverters.asScala(Arrays.asList(values)).toSeq();
        }
        if (to instanceof MapType) {
            if (!(value instanceof Map)) throw wrong(value, to);
            Map map = new LinkedHashMap();
            java.util.Iterator each = ((Map) value).entrySet().iterator();
            while (each.hasNext()) {
                Map.Entry one = (Map.Entry) each.next();
                map.put(out(one.getKey(), ((MapType) to).keyType()), out(one.getValue(), ((MapType) to).valueType()));
            }
            return scala.jdk.javaapi.CollectionConverters.asScala(map);
        }
        if (to instanceof StructType) return struct(value, (StructType) to);
        if (to instanceof StringType && value instanceof String) return value;
        if (to instanceof BinaryType && value instanceof byte[]) return value;
        if (to instanceof BooleanType && value instanceof Boolean) return value;
        if (to instanceof TimestampType) return value instanceof Long ? java.time.Instant.ofEpochMilli(((Long) value).longValue())
            : value instanceof java.sql.Timestamp ? ((java.sql.Timestamp) value).toInstant() : checked(value, to, java.time.Instant.class);
        if (to instanceof TimestampNTZType) return checked(value, to, java.time.LocalDateTime.class);
        if (to instanceof DateType) return value instanceof java.sql.Date ? ((java.sql.Date) value).toLocalDate() : checked(value, to, java.time.LocalDate.class);
        if (value instanceof Number) {
            Number number = (Number) value;
            if (to instanceof DoubleType) return Double.valueOf(number.doubleValue());
            if (to instanceof FloatType && !(value instanceof Double)) return Float.valueOf(number.floatValue());
            boolean whole = value instanceof Long || value instanceof Integer || value instanceof Short || value instanceof Byte;
            if (to instanceof LongType && whole) return Long.valueOf(number.longValue());
            if (to instanceof IntegerType && whole) return Integer.valueOf(Math.toIntExact(number.longValue()));
            if (to instanceof DecimalType) return value instanceof java.math.BigDecimal ? value : new java.math.BigDecimal(number.toString());
            if (to instanceof ShortType && value instanceof Short) return value;
            if (to instanceof ByteType && value instanceof Byte) return value;
        }
        throw wrong(value, to);
    }

    static Object checked(Object value, DataType to, Class wanted) {
        if (wanted.isInstance(value)) return value;
        throw wrong(value, to);
    }

    static IllegalArgumentException wrong(Object value, DataType to) {
        return new IllegalArgumentException("its result is a " + value.getClass().getName() + ", not " + to.sql() + ": name its type under `returns`");
    }

    Object struct(Object value, StructType to) throws Exception {
        StructField[] fields = to.fields();
        Object[] values = new Object[fields.length];
        String of = value.getClass().getName();
        boolean byPlace = of.equals(FLINK + "types.Row") || of.startsWith(FLINK + "api.java.tuple.Tuple");
        for (int i = 0; i < fields.length; i++) {
            Object part;
            if (value instanceof Row) part = ((Row) value).get(i);
            else if (value instanceof List) part = ((List) value).get(i);
            else if (byPlace) part = value.getClass().getMethod("getField", new Class[] {int.class}).invoke(value, new Object[] {Integer.valueOf(i)});
            else part = part(value, fields[i].name());
            values[i] = out(part, fields[i].dataType());
        }
        return RowFactory.create(values);
    }

    Object part(Object of, String name) throws Exception {
        String upper = name.substring(0, 1).toUpperCase() + name.substring(1);
        String[] getters = {name, "get" + upper, "is" + upper};
        for (int i = 0; i < getters.length; i++) {
            try { Method getter = of.getClass().getMethod(getters[i], new Class[0]); getter.setAccessible(true); return getter.invoke(of, new Object[0]); }
            catch (NoSuchMethodException next) { continue; }
        }
        for (Class c = of.getClass(); c != null; c = c.getSuperclass()) {
            try { Field field = c.getDeclaredField(name); field.setAccessible(true); return field.get(of); }
            catch (NoSuchFieldException next) { continue; }
        }
        throw new IllegalArgumentException("its result, a " + of.getClass().getName() + ", has no field `" + name + "`");
    }

    boolean isRow() { return kind.equals("table_scalar") || kind.endsWith("_row"); }

    // ---- for each record -----------------------------------------------------------------------------------------

    /** Its value, and why it failed. */
    Object row(Object[] given) throws Exception {
        try { return RowFactory.create(new Object[] {value(given), null}); }
        catch (Throwable error) {
            if (error instanceof VirtualMachineError) throw (VirtualMachineError) error;
            return RowFactory.create(new Object[] {null, words(own(error))});
        }
    }

    Object value(Object[] given) throws Exception {
        Object user = instance();
        if (kind.equals("hive_row")) {
            OfHive ready = ofHive((Row) given[0]);
            return out(ready.value(hivesOf((Row) given[0])), type);
        }
        if (kind.equals("spark_row")) return out(method("call", given).invoke(user, given), type);
        Object[] values = new Object[given.length];
        for (int i = 0; i < given.length; i++) values[i] = given[i] instanceof Row || given[i] instanceof scala.collection.Iterable ? in(given[i], null) : given[i];
        Method found = method("eval", values);
        Class[] p = found.getParameterTypes();
        for (int i = 0; i < values.length; i++) values[i] = in(given[i], p[i]);
        return out(found.invoke(user, values), type);
    }

    public Object call(Object a) throws Exception { return !isRow() ? fold(a) : row(new Object[] {a}); }
    public Object call(Object a, Object b) throws Exception { return row(new Object[] {a, b}); }
    public Object call(Object a, Object b, Object c) throws Exception { return row(new Object[] {a, b, c}); }
    public Object call(Object a, Object b, Object c, Object d) throws Exception { return row(new Object[] {a, b, c, d}); }
    public Object call(Object a, Object b, Object c, Object d, Object e) throws Exception { return row(new Object[] {a, b, c, d, e}); }
    public Object call(Object a, Object b, Object c, Object d, Object e, Object f) throws Exception { return row(new Object[] {a, b, c, d, e, f}); }
    public Object call(Object a, Object b, Object c, Object d, Object e, Object f, Object g) throws Exception { return row(new Object[] {a, b, c, d, e, f, g}); }
    public Object call(Object a, Object b, Object c, Object d, Object e, Object f, Object g, Object h) throws Exception { return row(new Object[] {a, b, c, d, e, f, g, h}); }

    RuntimeException failed(String where, String input, Throwable error) {
        return new RuntimeException("rw_function_failed function `" + name + "` (" + className + ") failed" + where + " on " + input + ": " + words(own(error)), own(error));
    }

    /** The error of the user's method itself. */
    static Throwable own(Throwable error) {
        return error instanceof InvocationTargetException ? ((InvocationTargetException) error).getCause() : error;
    }

    static String words(Throwable error) {
        return error instanceof IllegalArgumentException ? String.valueOf(error.getMessage()) : String.valueOf(error);
    }

    // ---- classes of Hive ---------------------------------------------------------------------------------------

    /**
     * A class of Hive's, ready for arguments of these types: by them it chooses its method or its evaluator.
     *
     * Spark has choosers of its own, since Hive's need all that Hive's built-in functions need.
     */
    static class OfHive {
        final ObjectInspector[] inspectors; ObjectInspector result;
        GenericUDF generic; UDF plain; Method evaluate; GenericUDFUtils.ConversionHelper converting; GenericUDAFEvaluator evaluator;

        OfHive(Object user, StructType given) throws Exception {
            StructField[] fields = given.fields();
            inspectors = new ObjectInspector[fields.length];
            List types = new ArrayList();
            for (int i = 0; i < fields.length; i++) {
                TypeInfo type = TypeInfoUtils.getTypeInfoFromTypeString(fields[i].dataType().catalogString());
                types.add(type);
                inspectors[i] = TypeInfoUtils.getStandardJavaObjectInspectorFromTypeInfo(type);
            }
            if (user instanceof GenericUDF) { generic = (GenericUDF) user; result = generic.initialize(inspectors); }
            else if (user instanceof UDF) {
                plain = (UDF) user;
                UDFMethodResolver chooser = plain.getResolver();
                if (chooser instanceof DefaultUDFMethodResolver) chooser = new SparkDefaultUDFMethodResolver((DefaultUDFMethodResolver) chooser);
                evaluate = chooser.getEvalMethod(types);
                evaluate.setAccessible(true);
                converting = new GenericUDFUtils.ConversionHelper(evaluate, inspectors);
                result = ObjectInspectorFactory.getReflectionObjectInspector(evaluate.getGenericReturnType(), ObjectInspectorFactory.ObjectInspectorOptions.JAVA);
            } else {
                GenericUDAFResolver resolver = user instanceof UDAF ? new SparkGenericUDAFBridge((UDAF) user) : (GenericUDAFResolver) user;
                SimpleGenericUDAFParameterInfo asked = new SimpleGenericUDAFParameterInfo(inspectors, false, false, false);
                evaluator = resolver instanceof GenericUDAFResolver2 ? ((GenericUDAFResolver2) resolver).getEvaluator(asked)
                    : resolver.getEvaluator((TypeInfo[]) types.toArray(new TypeInfo[0]));
                result = evaluator.init(GenericUDAFEvaluator.Mode.COMPLETE, inspectors);
            }
        }

        Object value(Object[] given) throws Exception {
            if (plain != null) return copied(HiveFunctionRegistryUtils.invoke(evaluate, plain, converting.convertIfNecessary(given)));
            GenericUDF.DeferredObject[] deferred = new GenericUDF.DeferredObject[given.length];
            for (int i = 0; i < given.length; i++) deferred[i] = new GenericUDF.DeferredJavaObject(given[i]);
            return copied(generic.evaluate(deferred));
        }

        Object state() throws Exception { return new Object[] {this, evaluator.getNewAggregationBuffer()}; }

        Object iterate(Object state, Object[] given) throws Exception {
            evaluator.iterate((GenericUDAFEvaluator.AggregationBuffer) ((Object[]) state)[1], given);
            return state;
        }

        Object terminate(Object state) throws Exception {
            return copied(evaluator.terminate((GenericUDAFEvaluator.AggregationBuffer) ((Object[]) state)[1]));
        }

        Object copied(Object value) { return ObjectInspectorUtils.copyToStandardJavaObject(value, result); }
    }

    OfHive ofHive(Row given) throws Exception {
        instance();
        String types = "#hive " + given.schema().catalogString();
        OfHive known = (OfHive) shapes.get(types);
        if (known == null) { known = new OfHive(created(), given.schema()); shapes.put(types, known); }
        return known;
    }

    Object[] hivesOf(Row given) throws Exception {
        Object[] values = new Object[given.size()];
        for (int i = 0; i < values.length; i++) values[i] = in(given.get(i), null);
        return values;
    }

    /** A value of Spark's as Hive's standard objects are; lists and maps are gone through by `in`. */
    Object hives(Object value) throws Exception {
        if (value instanceof java.math.BigDecimal) return HiveDecimal.create((java.math.BigDecimal) value);
        if (value instanceof java.time.Instant) return in(value, java.sql.Timestamp.class);
        if (value instanceof java.time.LocalDate) return in(value, java.sql.Date.class);
        return value instanceof Row ? Arrays.asList(hivesOf((Row) value)) : value;
    }

    // ---- for all records of a window -----------------------------------------------------------------------------

    /** Records are structs of `rw_at` (the position), `rw_key`, `rw_time` and `rw_in` (the arguments). */
    Object fold(Object list) throws Exception {
        if (list == null) return null;
        Object[] records = new Object[((scala.collection.Seq) list).size()];
        scala.collection.Iterator each = ((scala.collection.Seq) list).iterator();
        for (int i = 0; each.hasNext(); i++) records[i] = each.next();
        if (records.length == 0) return null;
        Arrays.sort(records, new InOrder());
        Object state; Row current = null;
        try {
            Object user = instance();
            state = zero(user);
            for (int i = 0; i < records.length; i++) { current = (Row) records[i]; state = add(user, state, i, (Row) current.getAs("rw_in")); }
            current = null;
            return out(result(user, state), type);
        } catch (Throwable error) {
            Row first = (Row) records[0]; Row last = (Row) records[records.length - 1];
            Row key = (Row) first.getAs("rw_key");
            String where = (key == null ? "" : " for the key " + shown(key))
                + " in the window of the records from " + moment(first, last, true) + " to " + moment(first, last, false);
            throw failed(where, current == null ? "its result" : "the record " + shown((Row) current.getAs("rw_in")), error);
        }
    }

    static String shown(Row row) {
        StringBuilder text = new StringBuilder("{");
        for (int i = 0; i < row.size(); i++) text.append(i == 0 ? "" : ", ").append(row.schema().fieldNames()[i]).append("=").append(row.get(i));
        return text.append("}").toString();
    }

    static String moment(Row a, Row b, boolean least) {
        Object x = a.getAs("rw_time"); Object y = b.getAs("rw_time");
        if (x == null || y == null) return String.valueOf(x == null ? y : x);
        long one = ((Long) x).longValue(); long other = ((Long) y).longValue();
        return java.time.Instant.ofEpochMilli(least ? Math.min(one, other) : Math.max(one, other)).toString();
    }

    Object zero(Object user) throws Exception {
        if (kind.equals("flink_reduce") || kind.equals("hive_aggregate")) return null;
        if (kind.equals("spark_aggregate")) return ((Aggregator) user).zero();
        return method("createAccumulator", new Object[0]).invoke(user, new Object[0]);
    }

    Object add(Object user, Object state, int number, Row given) throws Exception {
        if (kind.equals("hive_aggregate")) {
            OfHive ready = ofHive(given);
            return ready.iterate(state == null ? ready.state() : state, hivesOf(given));
        }
        if (kind.equals("table_aggregate")) {
            Object[] values = new Object[given.size() + 1];
            values[0] = state;
            for (int i = 0; i < given.size(); i++) values[i + 1] = given.get(i) instanceof Row ? in(given.get(i), null) : given.get(i);
            Method found = method("accumulate", values);
            Class[] p = found.getParameterTypes();
            for (int i = 1; i < values.length; i++) values[i] = in(given.get(i - 1), p[i]);
            found.invoke(user, values);
            return state;
        }
        if (given.size() == 1 && given.get(0) instanceof Row) given = (Row) given.get(0);
        Object one = record(given, inputClass(user));
        if (kind.equals("flink_reduce")) return number == 0 ? one : pair(user, "reduce").invoke(user, new Object[] {state, one});
        if (kind.equals("spark_aggregate")) return ((Aggregator) user).reduce(state, one);
        return pair(user, "add").invoke(user, new Object[] {one, state});
    }

    Object result(Object user, Object state) throws Exception {
        if (kind.equals("flink_reduce")) return state;
        if (kind.equals("hive_aggregate")) return ((OfHive) ((Object[]) state)[0]).terminate(state);
        if (kind.equals("spark_aggregate")) return ((Aggregator) user).finish(state);
        return single(user, kind.equals("table_aggregate") ? "getValue" : "getResult").invoke(user, new Object[] {state});
    }

    Method pair(Object user, String named) throws Exception { return ofInterface(user, named, 2); }
    Method single(Object user, String named) throws Exception { return ofInterface(user, named, 1); }

    /** The interface's own method: whatever types the class has, it takes objects. */
    Method ofInterface(Object user, String named, int parameters) throws Exception {
        Method known = (Method) methods.get("#" + named);
        if (known != null) return known;
        Method[] all = base(user).getMethods();
        for (int i = 0; i < all.length; i++)
            if (all[i].getName().equals(named) && all[i].getParameterTypes().length == parameters) { methods.put("#" + named, all[i]); return all[i]; }
        throw new NoSuchMethodException(named);
    }

    Class base(Object user) {
        for (int i = 0; i < KINDS.length; i++) if (KINDS[i][0].equals(kind)) return ancestor(user.getClass(), KINDS[i][1]);
        return user.getClass();
    }

    Class inputClass(Object user) throws Exception {
        Object known = shapes.get("#input");
        if (known != null) return (Class) known;
        Class base = base(user);
        Object given = TypeUtils.getTypeArguments(user.getClass(), base).get(base.getTypeParameters()[0]);
        Class found = given instanceof java.lang.reflect.Type ? TypeUtils.getRawType((java.lang.reflect.Type) given, user.getClass()) : null;
        shapes.put("#input", found == null ? Object.class : found);
        return inputClass(user);
    }

    /** By the position; records without one by their content, so that no order of Spark's decides. */
    public static class InOrder implements Comparator, Serializable {
        public int compare(Object a, Object b) {
            Row x = (Row) a; Row y = (Row) b;
            Row at = (Row) x.getAs("rw_at"); Row other = (Row) y.getAs("rw_at");
            for (int i = 0; i < at.size(); i++) {
                Object one = at.get(i); Object two = other.get(i);
                if (one == null || two == null) { if (one != two) return one == null ? -1 : 1; continue; }
                int order = Long.compare(((Number) one).longValue(), ((Number) two).longValue());
                if (order != 0) return order;
            }
            return x.getAs("rw_in").toString().compareTo(y.getAs("rw_in").toString());
        }
    }

    // ---- registering ---------------------------------------------------------------------------------------------

    /** Make the function known to a session's SQL under `as`, with so many arguments. */
    public static void register(SparkSession spark, String as, LiveFunction function, int arguments) {
        if (function.isRow()) {
            StructType tried = new StructType().add("value", function.type).add("why", "string");
            register(spark, as, function, arguments, tried);
        } else register(spark, as, function, 1, function.type);
    }

    static void register(SparkSession spark, String as, LiveFunction function, int arguments, DataType type) {
        if (arguments == 1) spark.udf().register(as, (UDF1) function, type);
        else if (arguments == 2) spark.udf().register(as, (UDF2) function, type);
        else if (arguments == 3) spark.udf().register(as, (UDF3) function, type);
        else if (arguments == 4) spark.udf().register(as, (UDF4) function, type);
        else if (arguments == 5) spark.udf().register(as, (UDF5) function, type);
        else if (arguments == 6) spark.udf().register(as, (UDF6) function, type);
        else if (arguments == 7) spark.udf().register(as, (UDF7) function, function.type);
        else spark.udf().register(as, (UDF8) function, type);
    }

    /** The value of a row function, or an error with the reason why it failed. */
    public static class OrError extends scala.runtime.AbstractFunction1 implements Serializable {
        final String name; final String tried; final boolean packed;
        public OrError(String name, String tried, boolean packed) { this.name = name; this.tried = tried; this.packed = packed; }
        public Object apply(Object arguments) {
            scala.collection.immutable.Seq given = (scala.collection.immutable.Seq) arguments;
            if (packed) given = seq(new Object[] {function("struct", given)});
            Expression call = function(tried, given);
            Expression why = new UnresolvedExtractValue(call, Literal.create("why", DataTypes.StringType));
            Expression value = new UnresolvedExtractValue(call, Literal.create("value", DataTypes.StringType));
            Expression words = function("concat", seq(new Object[] {Literal.create(name + "() failed with ", DataTypes.StringType), why}));
            return new If(new IsNotNull(why), function("raise_error", seq(new Object[] {words})), value);
        }
        static Expression function(String name, scala.collection.immutable.Seq arguments) {
            return UnresolvedFunction$.MODULE$.apply(name, arguments, false);
        }
        static scala.collection.immutable.Seq seq(Object[] of) {
            return scala.jdk.javaapi.CollectionConverters.asScala(Arrays.asList(of)).toSeq();
        }
    }

    /** Make `name` known to a session's SQL as the value of the row function `tried`; `packed`: it takes one struct. */
    public static void registerTried(SparkSession spark, String name, String tried, boolean packed) {
        ((org.apache.spark.sql.classic.SparkSession) spark).sessionState().functionRegistry()
            .createOrReplaceTempFunction(name, new OrError(name, tried, packed), "scala_udf");
    }
}
