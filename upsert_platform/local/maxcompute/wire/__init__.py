"""Codecs of the wire formats; they know neither storage nor sessions."""
