"""What patterns of Java, and its characters, mean in Python."""

from __future__ import annotations

from typing import Final

LINE_END: Final = r"(?:\Z|(?=\r\n\Z)|(?=(?<!\r)\n\Z)|(?=[\r\x85\u2028\u2029]\Z))"
"""Java's ``$``: the end of a text, or where nothing but the end of a line stands behind."""
