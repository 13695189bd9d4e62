"""The REST interface: projects, schemas, tables, partitions, instances (spec 3.1, 3.4)."""
