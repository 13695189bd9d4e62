"""Errors as the service reports them: an HTTP status, a code that SDKs map to a class, and a message.

The REST interface answers XML, the tunnel and the storage API answer JSON (spec 3.3).
"""

from __future__ import annotations

import json
from xml.sax.saxutils import escape


class ServiceError(Exception):
    """A refusal of the service.

    Attributes:
        status: HTTP status.
        code: for example ``NoSuchTable``, ``SessionStatusConflict`` or ``ODPS-0130161``.
    """

    def __init__(self, status: int, code: str, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = headers or {}

    def as_xml(self, request_id: str, host: str) -> bytes:
        """The body of the REST interface; without HostId PyODPS cannot map the class."""
        message = self.message.replace("]]>", "]] >")
        return (
            '<?xml version="1.0" encoding="UTF-8"?>'
            f"<Error><Code>{escape(self.code)}</Code><Message><![CDATA[{message}]]></Message>"
            f"<RequestId>{request_id}</RequestId><HostId>{escape(host)}</HostId></Error>"
        ).encode()

    def as_json(self, request_id: str, host: str) -> bytes:
        """The body of tunnel and storage API."""
        return json.dumps(
            {"Code": self.code, "Message": self.message, "RequestId": request_id, "HostId": host}
        ).encode()


def no_such_table(name: str) -> ServiceError:
    return ServiceError(404, "NoSuchTable", f"ODPS-0130131:Table not found - table {name} cannot be resolved")


def is_a_view(name: str) -> ServiceError:
    return semantic_error(f"{name} is a view: this needs a table")


def no_such_partition(table: str, spec: str) -> ServiceError:
    return ServiceError(404, "NoSuchPartition", f"The specified partition does not exist: {table}({spec})")


def no_such_project(name: str) -> ServiceError:
    return ServiceError(404, "NoSuchProject", f"ODPS-0420111:Project not found - '{name}'")


def no_such_schema(name: str) -> ServiceError:
    return ServiceError(404, "NoSuchSchema", f"ODPS-0110061:Schema not found - '{name}'")


def parse_error(message: str) -> ServiceError:
    return ServiceError(400, "ODPS-0130161", f"ODPS-0130161:Parse exception - {message}")


def semantic_error(message: str) -> ServiceError:
    return ServiceError(400, "ODPS-0130071", f"ODPS-0130071:Semantic analysis exception - {message}")


def already_exists(message: str) -> ServiceError:
    return ServiceError(409, "ObjectAlreadyExists", f"ODPS-0121035:{message}")


def invalid_argument(message: str) -> ServiceError:
    return ServiceError(400, "InvalidArgument", message)


def table_modified(name: str) -> ServiceError:
    return ServiceError(
        409, "TableModified", f"The specified table {name} has been modified since the session was initiated"
    )
