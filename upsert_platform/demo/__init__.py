"""The demo: a few thousand users kept equal in Tablestore and MaxCompute, on the local stack."""
