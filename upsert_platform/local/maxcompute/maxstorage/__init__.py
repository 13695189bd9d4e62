"""The storage API, versions 2 and 3: write sessions, blocks, read sessions (spec 3.11)."""
