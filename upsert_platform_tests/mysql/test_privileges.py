"""What SHOW GRANTS tells of a reader's user, as both servers write it."""

from __future__ import annotations

import pytest

from upsert_platform.mysql.privileges import missing_grants

SELECT = ("SELECT", "`my_shop`.`t`")
LOG = ("REPLICATION SLAVE, BINLOG MONITOR", "*.*")
CASES = [
    (["GRANT ALL PRIVILEGES ON *.* TO `u`@`h` IDENTIFIED BY PASSWORD '*x' WITH GRANT OPTION"], []),
    (["GRANT USAGE ON *.* TO `u`@`h`"], [SELECT, LOG]),
    (["GRANT SELECT, REPLICATION SLAVE, BINLOG MONITOR ON *.* TO `u`@`h`"], []),
    (["GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'u'@'h'", "GRANT SELECT ON `my_shop`.* TO 'u'@'h'"], []),
    (["GRANT REPLICATION SLAVE, SUPER ON *.* TO 'u'@'h'", r"GRANT SELECT ON `my\_shop`.* TO 'u'@'h'"], []),
    (["GRANT REPLICATION SLAVE, SUPER ON *.* TO 'u'@'h'", "GRANT ALL PRIVILEGES ON `my%`.* TO 'u'@'h'"], []),
    (["GRANT REPLICATION SLAVE, SUPER ON *.* TO 'u'@'h'", "GRANT SELECT ON `my_shop`.`t` TO 'u'@'h'"], []),
    (["GRANT REPLICATION SLAVE, SUPER ON *.* TO 'u'@'h'", "GRANT INSERT ON `my_shop`.`t` TO 'u'@'h'"], [SELECT]),
    (["GRANT REPLICATION SLAVE, SUPER ON *.* TO 'u'@'h'", "GRANT SELECT ON `other`.* TO 'u'@'h'"], [SELECT]),
    (["GRANT SELECT, REPLICATION SLAVE ON *.* TO `u`@`h`"], [("BINLOG MONITOR", "*.*")]),
    (["GRANT `reader`@`%` TO `u`@`h`", "GRANT USAGE ON *.* TO `u`@`h`"], []),
]


@pytest.mark.parametrize(("granted", "missing"), CASES)
def test_what_is_missing(granted: list[str], missing: list[tuple[str, str]]) -> None:
    assert missing_grants(granted, schema="my_shop", table="t", mariadb=True) == missing
