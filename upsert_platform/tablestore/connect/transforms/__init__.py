"""Single Message Transforms of Kafka Connect that are functions of a record, with Kafka's semantics."""
