"""Take secrets out of texts by their values, in every form that answers and libraries repeat them in.

Settings register their secrets when they are read. Every error of the platform is redacted where it is made, so that
consoles, logs, Dagster's storage and JSON outputs need not know of secrets.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final
from urllib.parse import quote, quote_plus, unquote, urlsplit, urlunsplit

REDACTED: Final = "***"
_SHORTEST: Final = 6
"""Characters of a secret that is looked for everywhere: a shorter one would take words out of every text."""
_SHORTEST_ENCODED: Final = 8
_LOGIN_IN_URL: Final = re.compile(r"(?P<scheme>\b[a-zA-Z][\w+.-]*://)[^\s/@:]*:[^\s/@]+@")
_AUTHORIZATION: Final = re.compile(r"(?P<scheme>\b(?:[Bb]asic|[Bb]earer)\s+)(?=[\w+/.~-]+[A-Z\d])[\w+/.~-]{8,}=*")
_SECRET_NAME: Final = re.compile(r"(?i)secret|password|token|credential|access.?key(?!.?id)|account.?key|sas.?key")
_PASSWORD_IN_URL: Final = re.compile(r"(?P<before>[?&;]\w*password=)[^\s&;'\",)]+", re.IGNORECASE)
_known: set[str] = set()


def remember_secret(secret: str) -> None:
    """Registers a secret of this process; later texts are redacted of it."""
    if len(secret) >= _SHORTEST and secret not in _known:
        _known.add(secret)
        _pattern.cache_clear()


def remember_login(url: str) -> None:
    """Registers the password of an address, if it has one."""
    if "://" in url and "@" in url:
        login = url.partition("://")[2].rpartition("@")[0]
        remember_secret(unquote(login.partition(":")[2]))


def remember_settings(settings: Mapping[str, str]) -> None:
    """Registers the values of settings whose names say that they are secret."""
    for name, value in settings.items():
        if is_secret_name(name):
            remember_secret(value)


def has_password(address: str) -> bool:
    """Return whether an address has a password in it, of its login or as a parameter."""
    return bool(_LOGIN_IN_URL.search(address) or _PASSWORD_IN_URL.search(address))


def is_secret_name(name: str) -> bool:
    """Return whether the name of a setting says that its value is secret."""
    return _SECRET_NAME.search(name) is not None


def redact(text: str) -> str:
    """Return a text without registered secrets in any form, logins and passwords in URLs, and authorization headers."""
    pattern = _pattern()
    if pattern is not None:
        text = pattern.sub(REDACTED, text)
    text = _LOGIN_IN_URL.sub(rf"\g<scheme>{REDACTED}@", text)
    text = _PASSWORD_IN_URL.sub(rf"\g<before>{REDACTED}", text)
    return _AUTHORIZATION.sub(rf"\g<scheme>{REDACTED}", text)


def redact_error(error: BaseException) -> None:
    """Redacts the texts of an error, and of the errors that it comes of, in place: for those that others raised."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        one.args = tuple(redact(part) if isinstance(part, str) else part for part in one.args)
        one.__dict__.update({name: redact(part) for name, part in vars(one).items() if isinstance(part, str)})
        waiting += [one.__cause__, one.__context__]


def without_credentials(url: str) -> str:
    """Return an address without user and password."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


@lru_cache(maxsize=1)
def _pattern() -> re.Pattern[str] | None:
    forms = {form for secret in _known for form in _forms(secret)}
    if not forms:
        return None
    return re.compile("|".join(map(re.escape, sorted(forms, key=len, reverse=True))))


def _forms(secret: str) -> set[str]:
    """A secret as it is, in URLs, in JSON, and within base64 of a longer text (``user:password``)."""
    content = secret.encode("utf-8", "surrogatepass")
    found = {secret, quote(content, safe=""), quote_plus(content), secret.replace("\\", "\\\\").replace('"', '\\"')}
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + content).decode()
        # Characters that hold bits of what stands before or behind are left out.
        kept = encoded[-(-before * 8 // 6) : (before + len(content)) * 8 // 6]
        found |= {kept, kept.replace("+", "-").replace("/", "_")} if len(kept) >= _SHORTEST_ENCODED else set()
    return found
