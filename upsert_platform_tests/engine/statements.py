"""Statements of every class of query, each in words that Flink and DuckDB read alike."""

from __future__ import annotations

from typing import Final

STATEMENTS: Final = {
    "groups": "SELECT region, COUNT(*) AS n, COUNT(age) AS a, SUM(age) AS s FROM users GROUP BY region",
    "groups of what is added": "SELECT uid, COUNT(*) AS pv, COUNT(DISTINCT page) AS up FROM views GROUP BY uid",
    "decimals": "SELECT region, SUM(spent) AS s, MIN(spent) AS lo, MAX(spent) AS hi FROM users GROUP BY region",
    "doubles": "SELECT region, COUNT(score) AS n, MIN(score) AS lo, MAX(score) AS hi FROM users GROUP BY region",
    "everything": "SELECT COUNT(*) AS n, SUM(amount) AS s, MIN(amount) AS lo, MAX(kind) AS hi,"
    " COUNT(DISTINCT uid) AS u FROM orders",
    "distinct sums": "SELECT kind, SUM(DISTINCT amount) AS s, COUNT(DISTINCT amount) AS n, MIN(amount) AS lo,"
    " COUNT(DISTINCT uid) AS u FROM orders GROUP BY kind",
    "filters of aggregates": "SELECT kind, COUNT(*) FILTER (WHERE amount > 4) AS n, SUM(amount) FILTER (WHERE uid = 1)"
    " AS s, COUNT(DISTINCT uid) FILTER (WHERE amount >= 0) AS u, MAX(amount) FILTER (WHERE uid < 4) AS m FROM orders"
    " GROUP BY kind",
    "having": "SELECT uid, SUM(amount) AS s FROM orders WHERE kind = 'a' GROUP BY uid HAVING COUNT(*) > 1",
    "rollup": "SELECT kind, uid, GROUPING_ID(kind, uid) AS g, COUNT(*) AS n, SUM(uid) AS s, MAX(amount) AS hi FROM"
    " orders GROUP BY ROLLUP (kind, uid) HAVING COUNT(*) > 0",
    "cube of what is added": "SELECT uid, page, GROUPING_ID(uid, page) AS g, COUNT(DISTINCT secs) AS u FROM views GROUP"
    " BY CUBE (uid, page) HAVING COUNT(*) > 0",
    "grouping sets": "SELECT region, id, COUNT(*) AS n, GROUPING(region) AS g, SUM(age) AS s FROM users WHERE region IS"
    " NOT NULL GROUP BY id, GROUPING SETS ((region), ()) HAVING COUNT(*) > 0",
    "groups of a rollup": "SELECT n, COUNT(*) AS m FROM (SELECT kind, uid, COUNT(*) AS n FROM orders GROUP BY ROLLUP"
    " (kind, uid)) t GROUP BY n HAVING n > 0",
    "filter": "SELECT id, region FROM users WHERE age > 1 AND region IS NOT NULL",
    "distinct": "SELECT DISTINCT region, age FROM users WHERE age > 1 OR age IS NULL",
    "distinct of what is added": "SELECT DISTINCT uid, page FROM views",
    "first rows": "SELECT oid, uid, amount, rn FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY uid ORDER BY amount DESC"
    " NULLS LAST, oid) AS rn FROM orders) AS t WHERE rn <= 2",
    "first rows without number": "SELECT oid, uid, amount FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY kind ORDER BY"
    " ts NULLS FIRST, oid DESC) AS rn FROM orders) AS t WHERE rn < 4",
    "latest row": "SELECT uid, oid, ts FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY uid ORDER BY ts DESC NULLS LAST,"
    " oid DESC) AS rn FROM orders) AS t WHERE rn = 1",
    "second row": "SELECT uid, oid FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY uid ORDER BY amount NULLS FIRST,"
    " oid) AS rn FROM orders) AS t WHERE rn = 2",
    "first of all": "SELECT oid, amount FROM orders ORDER BY amount DESC NULLS LAST, oid LIMIT 3",
    "inner join": "SELECT o.oid, o.amount, u.region, u.id FROM orders AS o JOIN users AS u ON o.uid = u.id",
    "left join": "SELECT o.oid, o.amount, u.region FROM orders o LEFT JOIN users u ON o.uid = u.id AND u.age > 1",
    "right join": "SELECT o.oid, u.id, u.region FROM orders o RIGHT JOIN users u ON o.uid = u.id",
    "full join": "SELECT o.oid, u.id, u.region FROM orders o FULL JOIN users u ON o.uid = u.id",
    "join of many to many": "SELECT v.page, v.secs, o.oid FROM views v JOIN orders o ON v.uid = o.uid AND o.kind = 'a'",
    "join with a condition": "SELECT o.oid, u.id FROM orders o JOIN users u ON o.uid = u.id AND o.amount > u.age",
    "left join with a condition on the left": "SELECT u.id, o.oid, u.age FROM users u LEFT JOIN orders o ON o.uid ="
    " u.id AND u.age > 1 AND o.kind = 'a'",
    "right join with a condition on the right": "SELECT v.page, o.oid, o.amount FROM views v RIGHT JOIN orders o ON"
    " v.uid = o.uid AND o.kind = 'b'",
    "full join with conditions": "SELECT u.id, o.oid FROM users u FULL JOIN orders o ON u.id = o.uid AND u.region ="
    " 'eu' AND o.amount > 4",
    "cross join": "SELECT o.oid, u.id FROM orders o CROSS JOIN users u WHERE u.age = 1",
    "join by an inequality": "SELECT o.oid, u.id FROM orders o JOIN users u ON o.amount < u.age AND u.region = 'eu'",
    "beside a total": "SELECT o.oid, o.amount, t.hi FROM orders o, (SELECT MAX(amount) AS hi FROM orders) t WHERE"
    " o.amount >= t.hi",
    "frames of rows": "SELECT oid, COUNT(amount) OVER w AS n, MAX(amount) OVER w AS hi, LAG(kind) OVER (PARTITION BY"
    " uid ORDER BY oid) AS k FROM orders WINDOW w AS (PARTITION BY uid ORDER BY amount NULLS FIRST, oid DESC ROWS"
    " BETWEEN 1 PRECEDING AND CURRENT ROW)",
    "groups of ranks": "SELECT r, COUNT(*) AS n FROM (SELECT oid, RANK() OVER (PARTITION BY kind ORDER BY amount DESC"
    " NULLS LAST) AS r FROM orders) t WHERE r <= 3 GROUP BY r",
    "joined by commas": "SELECT o.oid, u.region FROM orders o, users u WHERE o.uid = u.id AND u.region = 'eu'",
    "three tables": "SELECT o.oid, u.region, v.page FROM orders o JOIN users u ON o.uid = u.id LEFT JOIN views v ON"
    " v.uid = u.id",
    "in": "SELECT oid, kind FROM orders WHERE uid IN (SELECT id FROM users WHERE age > 1)",
    "exists": "SELECT id, region FROM users AS u WHERE EXISTS (SELECT 1 FROM orders o WHERE o.uid = u.id AND o.kind ="
    " 'b')",
    "not exists": "SELECT id, age FROM users AS u WHERE NOT EXISTS (SELECT 1 FROM orders o WHERE o.uid = u.id)",
    "exists with a name used twice": "SELECT id, region FROM users AS o WHERE EXISTS (SELECT 1 FROM (SELECT o.uid AS x,"
    " o.kind AS region FROM orders AS o WHERE o.amount > 0) AS t WHERE t.x = o.id AND region = 'b')",
    "union all": "SELECT id, region FROM users UNION ALL SELECT uid, page FROM views",
    "intersect": "SELECT region, id FROM users INTERSECT SELECT page, uid FROM views",
    "except": "SELECT uid, kind FROM orders EXCEPT SELECT uid, page FROM views WHERE secs > 10",
    "groups of an intersection": "SELECT k, COUNT(*) AS n FROM (SELECT uid AS k, kind AS w FROM orders INTERSECT SELECT"
    " uid, kind FROM orders WHERE amount > 4) t GROUP BY k",
    "interval join": "SELECT o.oid, v.page, v.ts FROM orders o JOIN views v ON o.uid = v.uid AND o.ts BETWEEN v.ts -"
    " INTERVAL '10' MINUTE AND v.ts + INTERVAL '5' MINUTE",
    "union": "SELECT region AS r FROM users UNION SELECT page FROM views",
    "join of a union": "SELECT u.uid, o.oid FROM (SELECT uid FROM views UNION ALL SELECT uid FROM orders) u JOIN"
    " orders o ON u.uid = o.uid",
    "groups of a join": "SELECT u.region, COUNT(*) AS n, SUM(o.amount) AS s FROM orders o JOIN users u ON o.uid = u.id"
    " GROUP BY u.region",
    "groups of a left join": "SELECT u.region, COUNT(o.oid) AS n, COUNT(*) AS m, MAX(o.amount) AS hi FROM users u LEFT"
    " JOIN orders o ON o.uid = u.id GROUP BY u.region",
    "join of groups": "SELECT a.uid, a.n, b.s FROM (SELECT uid, COUNT(*) AS n FROM orders GROUP BY uid) a FULL JOIN"
    " (SELECT uid, SUM(secs) AS s FROM views GROUP BY uid) b ON a.uid = b.uid",
    "join whose sides both have a null": "SELECT a.uid AS one, b.uid AS other FROM (SELECT DISTINCT uid FROM orders) a"
    " FULL JOIN (SELECT DISTINCT uid FROM views) b ON a.uid = b.uid",
    "first rows of groups": "SELECT region, n, rn FROM (SELECT region, n, ROW_NUMBER() OVER (ORDER BY n DESC, region"
    " NULLS FIRST) AS rn FROM (SELECT region, COUNT(*) AS n FROM users GROUP BY region) g) t WHERE rn <= 2",
    "groups of first rows": "SELECT kind, COUNT(*) AS n, SUM(amount) AS s FROM (SELECT *, ROW_NUMBER() OVER (PARTITION"
    " BY uid ORDER BY oid) AS rn FROM orders) t WHERE rn = 1 GROUP BY kind",
    "groups of groups": "SELECT n, COUNT(*) AS m, MIN(uid) AS lo FROM (SELECT uid, COUNT(*) AS n FROM orders GROUP BY"
    " uid) t GROUP BY n",
    "groups of a union": "SELECT k, COUNT(*) AS n, SUM(v) AS s FROM (SELECT uid AS k, amount AS v FROM orders UNION ALL"
    " SELECT uid, secs FROM views) t GROUP BY k",
    "groups of distinct": "SELECT uid, COUNT(*) AS n FROM (SELECT DISTINCT uid, kind FROM orders) t GROUP BY uid",
    "everything of a join": "SELECT COUNT(*) AS n, COUNT(DISTINCT u.region) AS r FROM orders o JOIN users u ON o.uid ="
    " u.id",
    "common table": "WITH c AS (SELECT uid, SUM(amount) AS s FROM orders GROUP BY uid) SELECT u.id, c.s FROM users u"
    " LEFT JOIN c ON c.uid = u.id WHERE u.age IS NOT NULL",
    "join of a table with itself": "SELECT a.oid, b.oid AS other FROM orders a JOIN orders b ON a.uid = b.uid AND"
    " a.kind = b.kind",
    "left join by an interval": "SELECT o.oid, v.page, v.secs FROM orders o LEFT JOIN views v ON o.uid = v.uid "
    "AND o.ts BETWEEN v.ts - INTERVAL '10' MINUTE AND v.ts + INTERVAL '5' MINUTE",
    "full join with a condition of both sides": "SELECT o.oid, u.id, u.region FROM orders o FULL JOIN users u ON "
    "o.uid = u.id AND o.amount > u.age",
    "left join by an inequality": "SELECT o.oid, u.id, u.age FROM orders o LEFT JOIN users u ON o.amount < u.age "
    "AND o.kind = 'a'",
    "groups of a right join by an interval": "SELECT o.kind, COUNT(*) AS n, COUNT(v.uid) AS m, SUM(v.secs) AS s "
    "FROM views v RIGHT JOIN orders o ON o.uid = v.uid AND o.ts < v.ts GROUP BY o.kind",
    "not exists by an inequality": "SELECT id, age FROM users AS u WHERE NOT EXISTS (SELECT 1 FROM orders o WHERE "
    "o.amount < u.age AND o.kind = 'b')",
    "in with an inequality": "SELECT oid, kind FROM orders o WHERE o.uid IN (SELECT id FROM users u WHERE u.age > "
    "o.amount)",
    "exists of any row": "SELECT id, region FROM users WHERE EXISTS (SELECT 1 FROM orders WHERE amount > 900)",
    "not in with nulls below or": "SELECT oid, uid FROM orders WHERE amount > 400 OR uid NOT IN (SELECT age FROM users"
    " WHERE region = 'eu')",
    "not in with nulls around and below or": "SELECT oid, uid FROM orders o WHERE o.kind = 'a' OR o.amount NOT IN ("
    "SELECT u.age FROM users u WHERE u.id = o.uid)",
    "not in with nulls of the row's own": "SELECT oid, uid FROM orders o WHERE o.amount NOT IN (SELECT u.age FROM users"
    " u WHERE u.id = o.uid)",
    "not of in with nulls": "SELECT oid, uid FROM orders WHERE NOT (kind = 'a' AND uid IN (SELECT age FROM users) OR"
    " NOT (amount IN (SELECT age FROM users WHERE age IS NOT NULL) OR uid NOT IN (SELECT uid FROM views)))",
    "not in with nulls": "SELECT oid, uid FROM orders WHERE uid NOT IN (SELECT age FROM users WHERE region = 'eu')",
    "intersect all": "SELECT uid, kind FROM orders INTERSECT ALL SELECT uid, page FROM views",
    "groups of an except all": "SELECT k, COUNT(*) AS n FROM (SELECT uid AS k, page AS w FROM views EXCEPT ALL "
    "SELECT uid, kind FROM orders) t GROUP BY k",
    "ordered by a column that is not selected": "SELECT o.oid FROM orders AS o ORDER BY o.amount DESC NULLS LAST, "
    "oid LIMIT 3",
    "groups ordered by a count": "SELECT uid FROM orders GROUP BY uid ORDER BY COUNT(*) DESC, uid NULLS FIRST LIMIT 2",
    "values of subqueries": "SELECT oid, (SELECT MAX(age) FROM users) AS m FROM orders WHERE amount > (SELECT "
    "MIN(amount) FROM orders WHERE kind = 'a')",
    "groups beside a value": "SELECT kind, COUNT(*) AS n, (SELECT COUNT(*) FROM views) AS v FROM orders GROUP BY kind",
    "groups by columns with names of others": "SELECT p.uid, p.uid_2, COUNT(*) AS n FROM (SELECT id, age FROM users) AS"
    " p (uid, uid_2) JOIN orders o ON o.uid = p.uid GROUP BY p.uid, p.uid_2 HAVING p.uid_2 > 1 OR COUNT(*) > 1",
    "groups by an expression beside a column": "WITH t (uid, g) AS (SELECT uid, amount FROM orders) SELECT uid > 3 AS"
    " x, g, COUNT(*) AS n FROM t GROUP BY uid > 3, g",
    "with in a branch": "(WITH orders AS (SELECT uid FROM orders WHERE amount > 4) SELECT uid FROM orders) UNION ALL"
    " SELECT uid FROM orders",
    "with around another": "WITH a AS (SELECT uid FROM views), b AS (SELECT uid FROM a) SELECT uid, n FROM (WITH a AS"
    " (SELECT id FROM users) SELECT b.uid, COUNT(*) AS n FROM b JOIN a ON a.id = b.uid GROUP BY b.uid) t",
    "a value of a table that is joined": "SELECT a.oid FROM orders a JOIN users u ON a.uid = u.id WHERE a.uid ="
    " (SELECT MIN(age) FROM users)",
    "a table named as a column": "SELECT uid.oid, kind.page FROM orders AS uid JOIN views AS kind ON uid.uid = kind.uid"
    " WHERE uid.kind = kind.page OR uid.kind = 'a'",
    "exists beside a table named as a column": "SELECT uid.id, uid.region FROM users AS uid WHERE EXISTS (SELECT 1 FROM"
    " orders o WHERE o.uid = uid.id AND o.amount > uid.age)",
    "first rows ordered by their number": "SELECT oid FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY uid ORDER BY oid)"
    " AS rn FROM orders) t WHERE rn <= 3 ORDER BY rn DESC, oid LIMIT 2",
    "first rows of what is added, each once": "SELECT uid, page, secs FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY"
    " uid ORDER BY secs NULLS FIRST, page NULLS FIRST) AS rn FROM (SELECT uid, page, secs FROM views UNION SELECT uid,"
    " page, secs FROM views WHERE uid > 2) u) t WHERE rn <= 2",
    "frames of what is added, each once": "SELECT uid, secs, COUNT(*) OVER (PARTITION BY uid ORDER BY secs NULLS FIRST)"
    " AS n FROM (SELECT DISTINCT uid, secs FROM views) v",
    "several values in a list": "SELECT oid, kind FROM orders WHERE (uid, kind) IN ((1, 'a'), (2, 'b'), (3, 'a')) OR"
    " (kind, amount) = ('b', 4)",
    "several values in no list": "SELECT oid, kind FROM orders WHERE (uid, kind) NOT IN ((1, 'a'), (2, 'b'))",
    "several values in a subquery": "SELECT oid, kind FROM orders WHERE (uid, kind) IN (SELECT uid, page FROM views)",
    "several values in a subquery by row": "SELECT oid, uid FROM orders o WHERE (o.uid, o.amount) IN (SELECT u.id,"
    " u.age FROM users u WHERE u.region = o.kind) OR o.kind = 'b'",
    "any of a subquery": "SELECT oid, uid FROM orders WHERE uid = ANY (SELECT age FROM users WHERE region = 'eu')",
    "all of a subquery": "SELECT oid, uid FROM orders WHERE uid <> ALL (SELECT age FROM users WHERE region = 'eu')",
    "above any of a subquery": "SELECT oid, amount FROM orders WHERE amount > ANY (SELECT age FROM users WHERE region ="
    " 'eu')",
    "not above any of a subquery": "SELECT oid, amount FROM orders WHERE NOT (amount > SOME (SELECT age FROM users"
    " WHERE region = 'eu'))",
    "at least all of a subquery": "SELECT oid, amount FROM orders WHERE amount >= ALL (SELECT age FROM users WHERE"
    " region = 'eu' AND age < 3) OR kind = 'a'",
    "not below all of a subquery": "SELECT oid, amount FROM orders WHERE kind = 'a' OR NOT (amount < ALL (SELECT age"
    " FROM users WHERE region = 'eu'))",
    "at most all of the row's own": "SELECT oid, amount FROM orders o WHERE amount <= ALL (SELECT age FROM users u"
    " WHERE u.id = o.uid)",
    "below any of the row's own": "SELECT oid, amount FROM orders o WHERE amount < SOME (SELECT p.amount FROM orders p"
    " WHERE p.kind = o.kind AND p.uid > 3)",
    "equal to all of a subquery": "SELECT oid, kind FROM orders o WHERE kind = ALL (SELECT page FROM views WHERE secs <"
    " 2)",
    "other than any of the row's own": "SELECT oid, kind FROM orders o WHERE kind <> ANY (SELECT region FROM users u"
    " WHERE u.id = o.uid)",
    "comparisons by ANY and ALL as values": "SELECT oid, uid > ALL (SELECT age FROM users WHERE region = 'eu') AS a,"
    " amount < ANY (SELECT secs FROM views v WHERE v.uid = o.uid) AS b FROM orders o",
    "groups with the greatest count": "SELECT uid, COUNT(*) AS n FROM orders GROUP BY uid HAVING COUNT(*) >= ALL"
    " (SELECT COUNT(*) FROM orders GROUP BY uid)",
    "a join by a comparison with all": "SELECT o.oid, u.id FROM orders o JOIN users u ON o.uid = u.id AND o.ts > ALL"
    " (SELECT ts FROM views WHERE secs > 40)",
    "above all values and one of any": "SELECT oid, uid FROM orders WHERE amount > ALL (1, 4) OR uid = ANY (1, 2) OR"
    " amount < SOME (0, 1)",
    "natural join": "SELECT uid, oid, page FROM orders NATURAL JOIN (SELECT uid, page, secs FROM views) v",
    "natural left join": "SELECT * FROM (SELECT uid, oid FROM orders) o NATURAL LEFT JOIN (SELECT uid, page FROM views)"
    " v",
    "having with a value": "SELECT uid, COUNT(*) AS n FROM orders GROUP BY uid HAVING SUM(amount) > (SELECT MAX(age)"
    " FROM users) OR COUNT(*) > 3",
    "having with a value by group": "SELECT uid, COUNT(*) AS n FROM orders o GROUP BY uid HAVING COUNT(*) > (SELECT"
    " COUNT(*) FROM views v WHERE v.uid = o.uid)",
    "having in": "SELECT uid, MAX(amount) AS hi FROM orders GROUP BY uid HAVING uid IN (SELECT uid FROM views) AND"
    " MAX(amount) NOT IN (SELECT age FROM users)",
    "having exists": "SELECT kind, COUNT(*) AS n FROM orders o GROUP BY kind HAVING EXISTS (SELECT COUNT(*) FROM views"
    " v WHERE v.page = o.kind) AND NOT EXISTS (SELECT 1 FROM users u WHERE u.region = o.kind)",
    "matches beside groups": "SELECT uid, COUNT(*) AS n, EXISTS (SELECT 1 FROM users u WHERE u.id = o.uid) AS known"
    " FROM orders o GROUP BY uid",
    "left join by a value on its right": "SELECT o.oid, u.id FROM orders o LEFT JOIN users u ON o.uid = u.id AND u.age"
    " > (SELECT MIN(age) FROM users)",
    "left join by a value on its left": "SELECT o.oid, u.id FROM orders o LEFT JOIN users u ON o.uid = u.id AND"
    " o.amount > (SELECT MIN(age) FROM users)",
    "left join by a value of each row": "SELECT u.region, COUNT(o.oid) AS n, COUNT(*) AS m FROM users u LEFT JOIN"
    " orders o ON o.uid = u.id AND o.amount = (SELECT MAX(p.amount) FROM orders p WHERE p.uid = o.uid) GROUP BY"
    " u.region",
    "left join with a value that is joined by": "SELECT o.oid, u.id FROM orders o LEFT JOIN users u ON u.id = (SELECT"
    " MAX(v.uid) FROM views v WHERE v.page = o.kind)",
    "left join with in on its left": "SELECT o.oid, u.id FROM orders o LEFT JOIN users u ON o.uid = u.id AND o.uid IN"
    " (SELECT uid FROM views WHERE secs > 20)",
    "left join with not in on its left": "SELECT o.oid, u.id FROM orders o LEFT JOIN users u ON o.uid = u.id AND"
    " o.amount NOT IN (SELECT uid FROM views WHERE secs > 45)",
    "left join with exists by an inequality on its right": "SELECT o.oid, u.id FROM orders o LEFT JOIN users u ON o.uid"
    " = u.id AND EXISTS (SELECT 1 FROM views v WHERE v.secs > u.age)",
    "right join with exists on its right": "SELECT o.oid, u.id FROM orders o RIGHT JOIN users u ON o.uid = u.id AND"
    " EXISTS (SELECT 1 FROM views v WHERE v.uid = u.id AND v.secs > 20)",
    "full join with subqueries on both sides": "SELECT o.oid, u.id FROM orders o FULL JOIN users u ON o.uid = u.id AND"
    " (o.kind = 'a' OR EXISTS (SELECT 1 FROM views v WHERE v.uid = o.uid)) AND u.age > (SELECT MIN(secs) FROM views)",
    "full join with a subquery below or": "SELECT o.oid, u.id FROM orders o FULL JOIN users u ON o.uid = u.id AND"
    " (o.kind = 'a' OR u.id IN (SELECT uid FROM views))",
    "left joins by comparisons with all": "SELECT o.oid, u.id, v.page FROM orders o LEFT JOIN users u ON o.uid = u.id"
    " AND o.amount > ALL (SELECT secs FROM views w WHERE w.uid = o.uid) LEFT JOIN views v ON v.uid = u.id AND v.secs <"
    " ANY (SELECT uid FROM orders)",
    "a join with a subquery in its condition": "SELECT o.oid, u.id FROM orders o JOIN users u ON o.uid = u.id AND"
    " o.amount > (SELECT MIN(age) FROM users) AND u.id IN (SELECT uid FROM views) LEFT JOIN views v ON v.uid = o.oid",
}
_JUDGED: Final = {
    "above all values and one of any": "SELECT oid, uid FROM orders WHERE amount > 4 OR uid IN (1, 2) OR amount < 1",
    "several values in a list": "SELECT oid, kind FROM orders WHERE (uid = 1 AND kind = 'a') OR (uid = 2 AND kind ="
    " 'b') OR (uid = 3 AND kind = 'a') OR (kind = 'b' AND amount = 4)",
    "several values in no list": "SELECT oid, kind FROM orders WHERE NOT ((uid = 1 AND kind = 'a') OR (uid = 2 AND kind"
    " = 'b'))",
    "several values in a subquery": "SELECT oid, kind FROM orders o WHERE EXISTS (SELECT 1 FROM views v WHERE v.uid ="
    " o.uid AND v.page = o.kind)",
    "several values in a subquery by row": "SELECT oid, uid FROM orders o WHERE EXISTS (SELECT 1 FROM users u WHERE"
    " u.id = o.uid AND u.age = o.amount AND u.region = o.kind) OR o.kind = 'b'",
}
"""What DuckDB computes instead of a statement: its rows of values are structs, in which two nulls are equal."""
WITH_FORMS: Final = {
    "full join using": "SELECT uid, o.oid, v.page FROM orders o FULL JOIN views v USING (uid)",
    "full join using behind another": "SELECT uid, o.oid, v.page, u.age FROM orders o FULL JOIN views v USING (uid)"
    " LEFT JOIN (SELECT id AS uid, age FROM users) u USING (uid)",
    "aggregates of values": "SELECT kind, SUM(amount + (SELECT MAX(age) FROM users)) AS s, MAX((SELECT COUNT(*) FROM"
    " views v WHERE v.uid = o.uid)) AS m FROM orders o GROUP BY kind HAVING MIN(amount - (SELECT MIN(age) FROM users))"
    " > 0 OR COUNT(*) > 1",
    "a value within a value": "SELECT oid, (SELECT SUM(age + (SELECT MIN(id) FROM users)) FROM users) AS s FROM orders"
    " WHERE oid IN (SELECT MAX(uid + (SELECT MIN(id) FROM users)) FROM orders GROUP BY kind)",
    "aggregates of matches": "SELECT uid, SUM(CASE WHEN oid IN (SELECT id FROM users) THEN 1 ELSE 0 END) AS n, COUNT(*)"
    " FILTER (WHERE EXISTS (SELECT 1 FROM users u WHERE u.id = o.uid)) AS m FROM orders o GROUP BY uid",
    "matches in the select list": "SELECT oid, EXISTS (SELECT 1 FROM views v WHERE v.uid = o.uid) AS seen, CASE WHEN"
    " oid IN (SELECT id FROM users) AND oid NOT IN (SELECT id FROM users WHERE age > 2) THEN 'x' ELSE kind END AS w"
    " FROM orders o",
}
"""Statements with expressions whose form is found in their Spark SQL."""


def judged(sql: str) -> str:
    """What DuckDB is to compute for a statement."""
    return next((other for name, other in _JUDGED.items() if STATEMENTS[name] == sql), sql)
