"""Rows that no system holds: made by `faker` and `datagen` tables, or written out in INSERT INTO ... VALUES."""
