"""The vocabulary that rooms share: what a user declares, SQL types, option models, errors, what connectors
offer, operators of queries.
"""
