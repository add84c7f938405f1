"""``python -m qbe.index``: the same as ``qbe index``."""

from qbe.__main__ import main

if __name__ == "__main__":
    main("index")
