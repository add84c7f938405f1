"""A page for scientists and an HTTP interface for programs, over one open index."""
