"""Judges a table by itself: what a topic holds, what the table holds, and where they differ.

Nothing here comes from the rest of the platform: decoders, order and comparison are written a second time, on the
standard library and the vendors' clients, so that a mistake of the platform is not repeated by its judge. Where a rule
is beyond these small decoders the answer is "not judged", counted, and never a guess.
"""
