"""The semantics of the Tablestore sink connector for Kafka: records to row changes and time-series rows."""
