"""Test and benchmark controls of the server besides MaxCompute's protocol: faults, a journal of requests, metrics."""
