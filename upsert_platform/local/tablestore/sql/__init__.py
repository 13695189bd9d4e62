"""SQLQuery: mapping tables over the instance's tables, and plain SELECT statements over them."""
