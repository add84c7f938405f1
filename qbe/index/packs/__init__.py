"""Indexes as one file each: packed, named in a registry, and pulled from an address."""
