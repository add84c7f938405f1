"""Test collections as the files of the other commands: corpus, topics, pools, qrels, folds.

`write_dataset` writes one of `DATASETS` to a folder. The names are loaded when they are first used, so that
``qbe datasets --help`` is fast.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from qbe.datasets.registry import DATASETS, Dataset, write_dataset

__all__ = ["DATASETS", "Dataset", "write_dataset"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from qbe.datasets import registry

    return getattr(registry, name)


def __dir__() -> list[str]:
    return __all__
