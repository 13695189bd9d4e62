"""What tests and benchmarks ask of the server besides MaxCompute: faults, a journal of requests, metrics."""
