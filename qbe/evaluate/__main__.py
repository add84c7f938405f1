"""``python -m qbe.evaluate``: the same as ``qbe evaluate``."""

from qbe.__main__ import main

if __name__ == "__main__":
    main("evaluate")
