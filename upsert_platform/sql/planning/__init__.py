"""A query that needs more than one row at a time, to a plan of operators (`upsert_platform.core.plan`)."""
