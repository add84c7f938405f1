"""``python -m qbe.search``: the same as ``qbe search``."""

from qbe.__main__ import main

if __name__ == "__main__":
    main("search")
