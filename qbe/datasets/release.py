"""The files of CSFCube's release (Mysore et al., 2021): where they are, or where to download them.

The abstracts of the collection are in the release's repository, with the judgements. The 800,000 abstracts
from which its pools were drawn are on figshare (doi 10.6084/m9.figshare.14796339); they are not downloaded,
since only those of the collection are judged. ``qbe index --corpus`` reads them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from qbe.datasets.download import download, matches
from qbe.errors import DatasetError
from qbe.files import cache_folder
from qbe.types import Facet

COMMIT = "7ffe012c1d92c470f185fc086086caf5b8e05ef3"
"""Release v1.1 of November 2021, which has evaluation scripts."""

BASE_URL = f"https://raw.githubusercontent.com/iesl/CSFCube/{COMMIT}/"

ABSTRACTS = "abstracts-csfcube-preds.jsonl"
FOLDS = "evaluation_splits.json"


def judgments_file(facet: Facet) -> str:
    """Return the name of the file with a facet's judgements and pools.

    >>> judgments_file(Facet.METHOD)
    'test-pid2anns-csfcube-method.json'
    """
    return f"test-pid2anns-csfcube-{facet}.json"


DIGESTS: Mapping[str, str] = {
    # The file's id in the commit; the other digests are SHA-256 of the files.
    ABSTRACTS: "git:ec4598cfed007d05701083f967813e311b28a9dc",
    judgments_file(
        Facet.BACKGROUND
    ): "sha256:2015cbf965377374e020b0ec133351ec1feb731b9a9c40da0e446ef6eee4fa5e",
    judgments_file(Facet.METHOD): "sha256:4d9b48f4b6a7a4fc24a30e0c0e74d1cc53eb4214ec4b855e3cd98e86829323a2",
    judgments_file(Facet.RESULT): "sha256:5ed7a63bc20e3deb725f8ec82abfcb1c5d79673befc942509b48effceb3be031",
    FOLDS: "sha256:1d23a1b2110e874809c9516f65c70e3c6e4b8fe3bd748ff36ff05c4875226c88",
}


def find_release(
    source: Path | None,
    *,
    base_url: str = BASE_URL,
    digests: Mapping[str, str] = DIGESTS,
    report: Callable[[str], None] = lambda _: None,
) -> Path:
    """Return the folder of the release's files.

    It is ``source`` if given, else ``$QBE_DATA/csfcube`` if that exists, else the cache, to which the files
    are downloaded where they are missing.

    Args:
        source: the folder, if it is known.
        base_url: address of the files.
        digests: digests by file name (see `qbe.datasets.download.matches`).
        report: called with one line for each download.

    Raises DatasetError for a folder where a file is missing, and for a download that fails.

    >>> Path("empty").touch()
    >>> find_release(Path(), digests={"empty": "git:e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"})
    PosixPath('.')
    """
    data = os.environ.get("QBE_DATA")
    if source is None and data and Path(data, "csfcube").is_dir():
        source = Path(data, "csfcube")
    if source is not None:
        absent = [name for name in digests if not (source / name).is_file()]
        if absent:
            raise DatasetError(
                f"{source}: expected the files of CSFCube's release, found no {', '.join(absent)}; "
                "give the release's folder as `source`"
            )
        return source
    folder = cache_folder() / "csfcube"
    for name, digest in digests.items():
        if download(base_url + name, folder / name, digest):
            report(f"downloaded {base_url}{name}")
    return folder


def changed_files(folder: Path, digests: Mapping[str, str] = DIGESTS) -> list[str]:
    """Return the names of the files that differ from the release's.

    >>> _ = Path("empty").touch(), Path("changed").write_text("other content")
    >>> digest = "git:e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"  # of an empty file
    >>> changed_files(Path(), {"empty": digest, "changed": digest})
    ['changed']
    """
    return [name for name, digest in digests.items() if not matches((folder / name).read_bytes(), digest)]
