package nexmark;

import org.apache.flink.table.functions.ScalarFunction;

/** The function that Nexmark's q14 calls: how often a text has a character; none in a text that is null. */
public class CountChar extends ScalarFunction {
    public long eval(String text, String character) {
        long count = 0;
        for (int at = 0; text != null && (at = text.indexOf(character, at)) >= 0; at++) {
            count++;
        }
        return count;
    }
}
