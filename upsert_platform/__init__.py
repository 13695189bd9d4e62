"""Keep Tablestore, MaxCompute and Kafka tables equal to the last value per key of Kafka topics."""

__version__ = "0.1.0"
