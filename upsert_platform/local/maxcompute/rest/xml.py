"""XML documents as nested tuples, so that no text is ever pasted into markup."""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import formatdate
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from upsert_platform.local.maxcompute.http import Response

# Name, text or children, and attributes if any.
Node = tuple[Any, ...]


class Literal(str):
    """Text that is put into a CDATA section."""


def render(node: Node) -> str:
    """The markup of a node: name, text or children, and attributes if any."""
    name, content = node[0], node[1]
    attributes = "".join(f" {key}={quoteattr(value)}" for key, value in (node[2] if len(node) > 2 else {}).items())
    if isinstance(content, Literal):
        inner = "<![CDATA[" + content.replace("]]>", "]]]]><![CDATA[>") + "]]>"
    elif isinstance(content, str):
        inner = escape(content)
    else:
        inner = "".join(render(child) for child in content)
    return f"<{name}{attributes}>{inner}</{name}>"


def answer(node: Node, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A response that carries the document."""
    body = '<?xml version="1.0" encoding="UTF-8"?>' + render(node)
    return Response(status, body.encode(), {"Content-Type": "application/xml", **(headers or {})})


def http_date(moment: float) -> str:
    """A time as RFC 822 writes it, in GMT."""
    return formatdate(moment, usegmt=True)
