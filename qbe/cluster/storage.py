"""Folders kept where all nodes can read them: any storage that fsspec opens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from qbe.cluster.ray_runtime import ClusterError
from qbe.errors import check_package


class Storage:
    """Folders of files below an address such as ``s3://bucket/parts`` or ``/mnt/shared/parts``.

    A folder is there once its last file, by which it is told, is.

    >>> storage = Storage("memory://parts")
    >>> folder = Path("finished")
    >>> folder.mkdir()
    >>> _ = (folder / "part.json").write_text("{}")
    >>> storage.has("1", "part.json"), storage.put(folder, "1", "part.json"), storage.has("1", "part.json")
    (False, None, True)
    """

    def __init__(self, address: str) -> None:
        """Raises MissingDependencyError without fsspec or the package that it needs for the protocol,
        ClusterError for an address that it does not know.
        """
        check_package("fsspec")
        import fsspec

        try:
            files, root = fsspec.core.url_to_fs(address)
        except ValueError as error:
            raise ClusterError(f"expected `storage` that fsspec opens, found {address}: {error}") from error
        self._files: Any = files
        self._root = str(root).rstrip("/")

    def has(self, name: str, last: str) -> bool:
        """Whether a folder is there as a whole."""
        return bool(self._files.exists(f"{self._root}/{name}/{last}"))

    def put(self, folder: Path, name: str, last: str) -> None:
        """Copy a folder there, the file ``last`` behind all others."""
        files = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / last)
        for path in [*files, folder / last]:
            target = f"{self._root}/{name}/{path.relative_to(folder).as_posix()}"
            self._files.makedirs(target.rpartition("/")[0], exist_ok=True)
            self._files.put_file(str(path), target)

    def get(self, name: str, folder: Path) -> None:
        """Copy a folder from there."""
        root = f"{self._root}/{name}"
        for path in sorted(self._files.find(root)):
            target = folder / path[path.index(root) + len(root) :].lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            self._files.get_file(path, str(target))

    def remove(self) -> None:
        """Remove all folders."""
        if self._files.exists(self._root):
            self._files.rm(self._root, recursive=True)
