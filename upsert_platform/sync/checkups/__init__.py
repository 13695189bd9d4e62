"""The diagnostics of `upsert-platform doctor`: the machine, the lake, and every endpoint of a project."""
