"""SQL of the local server: data definition by a grammar of its own, queries and changes through sqlglot onto DuckDB."""
