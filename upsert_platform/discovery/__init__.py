"""What a topic holds, found out by its schemas and a sample of its records, and declared."""
