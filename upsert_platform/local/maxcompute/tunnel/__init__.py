"""The tunnel: download, upload, stream upload and upsert sessions (spec 3.5 to 3.10)."""
