"""A search kept open on a terminal."""
