"""Proves that a table equals its source, whoever wrote the table: reads expected rows anew, and writes nothing."""
