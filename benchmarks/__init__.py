"""Measurements against the tools a user would otherwise pick; see README.md for the table."""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the command qbe sets it; read when numpy is loaded
