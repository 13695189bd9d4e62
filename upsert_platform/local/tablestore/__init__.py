"""A local Tablestore service: the HTTP protocol of the real one, rows in an embedded database."""
