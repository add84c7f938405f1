"""To be removed: see `qbe.train.artifacts`."""

from qbe.train.artifacts import checked, load_arrays, save_arrays, save_state

__all__ = ["checked", "load_arrays", "save_arrays", "save_state"]
