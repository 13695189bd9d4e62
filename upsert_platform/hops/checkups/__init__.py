"""What `upsert-platform doctor` looks at: the machine, the lake, and every endpoint that a project names."""
