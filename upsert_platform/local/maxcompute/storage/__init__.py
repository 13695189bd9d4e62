"""The storage engine: a catalogue in SQLite and immutable Arrow segment files; a commit adds segments and a version."""
