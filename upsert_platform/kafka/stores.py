"""Java trust and key stores for a client that knows PEM and PKCS#12 alone: opened with the JDK's keytool.

Passwords go to keytool in its environment, never on its command line.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from pydantic import SecretStr

from upsert_platform.core.errors import EndpointError

KINDS: Final = ("PEM", "JKS", "PKCS12")
"""What `ssl.truststore.type` and `ssl.keystore.type` may be."""
KEYTOOL_SECONDS: Final = 60
_STORE_PASSWORD: Final = "UPSERT_PLATFORM_STORE_PASSWORD"
_KEY_PASSWORD: Final = "UPSERT_PLATFORM_KEY_PASSWORD"
_PEM: Final = re.compile(r"-----BEGIN (?P<label>[A-Z0-9 ]+)-----(?P<body>.*?)-----END (?P=label)-----", re.DOTALL)
_ENTRY: Final = re.compile(r"^Entry type: (\w+)", re.MULTILINE)
_ALIAS: Final = re.compile(
    r"^Alias name: (?P<alias>.*)\n(?:Creation date: .*\n)?Entry type: PrivateKeyEntry", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Store:
    """A JKS or PKCS#12 file.

    Attributes:
        option: the declared property that names it, for messages.
        key_password: of the private key, where it has one of its own.
    """

    path: str
    option: str
    password: SecretStr | None = None
    key_password: SecretStr | None = None

    def secrets(self) -> Iterator[str]:
        """Values that must never be shown."""
        yield from (value.get_secret_value() for value in (self.password, self.key_password) if value is not None)


@contextmanager
def store_settings(trust: Store | None, key: Store | None) -> Iterator[dict[str, str]]:
    """librdkafka settings of stores, good for creating a client while the context is open.

    Raises:
        EndpointError: a store cannot be read, or there is no keytool.
    """
    settings: dict[str, str] = {}
    if trust is not None:
        settings["ssl.ca.pem"] = _trusted(trust, _changed(trust))
    if key is None:
        yield settings
        return
    with tempfile.TemporaryDirectory(prefix="upsert-platform-") as folder:  # only this user can enter it
        converted = Path(folder) / "key.p12"
        password = _convert(key, converted)
        yield settings | {"ssl.keystore.location": str(converted), "ssl.keystore.password": password}


def wrapped_pem(text: str) -> str:
    """PEM as the client wants it, of text that has lost its line ends (as values of options do)."""

    def wrap(match: re.Match[str]) -> str:
        label, body = match["label"], match["body"]
        if ":" in body:  # headers of an encrypted key, which mean something only in lines of their own
            return match[0]
        lines = textwrap.wrap("".join(body.split()), 64)
        return "\n".join((f"-----BEGIN {label}-----", *lines, f"-----END {label}-----\n"))

    return _PEM.sub(wrap, text.replace("\\n", "\n"))


def _changed(store: Store) -> int:
    try:
        return Path(store.path).stat().st_mtime_ns
    except OSError as error:
        raise EndpointError(
            f"client property '{store.option}': the store {store.path} cannot be read: {error.strerror}"
        ) from None


@lru_cache(maxsize=16)
def _trusted(store: Store, changed: int) -> str:
    """Certificates that a trust store trusts, as PEM; read again when the file has changed."""
    listed = _keytool(store, "-list", "-rfc", "-keystore", store.path)
    parts = _ENTRY.split(listed)
    trusted = (text for kind, text in zip(parts[1::2], parts[2::2], strict=True) if kind == "trustedCertEntry")
    found = "".join(f"{match[0]}\n" for text in trusted for match in _PEM.finditer(text))
    if not found:
        raise EndpointError(f"client property '{store.option}': the store {store.path} holds no trusted certificate")
    return found


def _convert(store: Store, target: Path) -> str:
    """Writes a key store as PKCS#12, and returns its password."""
    _changed(store)
    if store.password is None:
        raise EndpointError(
            f"client property '{store.option}': the store {store.path} has a password; set"
            " 'properties.ssl.keystore.password'"
        )
    arguments = ["-importkeystore", "-noprompt", "-srckeystore", store.path, "-srcstorepass:env", _STORE_PASSWORD]
    arguments += ["-destkeystore", str(target), "-deststoretype", "PKCS12", "-deststorepass:env", _STORE_PASSWORD]
    if store.key_password is not None and store.key_password != store.password:
        aliases = _ALIAS.findall(_keytool(store, "-list", "-rfc", "-keystore", store.path))
        if len(aliases) != 1:
            raise EndpointError(
                f"client property '{store.option}': the store {store.path} holds {len(aliases)} private keys; keep one"
            )
        arguments += ["-srcalias", aliases[0], "-srckeypass:env", _KEY_PASSWORD]
        arguments += ["-destkeypass:env", _STORE_PASSWORD]
    _keytool(store, *arguments)
    return store.password.get_secret_value()


def _keytool(store: Store, *arguments: str) -> str:
    environment: Mapping[str, str] = {
        **os.environ,
        **({} if store.password is None else {_STORE_PASSWORD: store.password.get_secret_value()}),
        **({} if store.key_password is None else {_KEY_PASSWORD: store.key_password.get_secret_value()}),
    }
    password = ["-storepass:env", _STORE_PASSWORD] if arguments[0] == "-list" and store.password is not None else []
    command = [_keytool_path(store), "-J-Duser.language=en", *arguments, *password]
    done = subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=KEYTOOL_SECONDS,
    )
    if done.returncode:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if "error" in line.lower()]
        reason = (lines or ["keytool does not say why"])[0].removeprefix("keytool error: ")
        raise EndpointError(
            f"client property '{store.option}': the store {store.path} cannot be opened: {reason}; check its password"
        )
    return done.stdout


def _keytool_path(store: Store) -> str:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("keytool", path=str(Path(home) / "bin")) if home else None
    found = found or shutil.which("keytool")
    if found is None:
        raise EndpointError(
            f"client property '{store.option}': reading the Java store {store.path} needs the JDK's keytool, which is"
            " neither in JAVA_HOME nor on PATH; install Java, or convert the store to PEM and set its type to PEM"
        )
    return found
