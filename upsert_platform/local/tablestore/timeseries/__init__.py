"""The timeseries model: its tables, rows and timelines in the same database as the other tables."""
