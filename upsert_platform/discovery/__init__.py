"""Declarations of existing topics, found by their schemas and a sample of their records."""
