"""The options of ``qbe index``, which of them go together, and what they come to."""

from __future__ import annotations

from qbe.cli import common as _cli

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from qbe.corpus.records import Reading
    from qbe.index.source import BuildSettings

_READING = ("corpus", "format", "category", "on_error", "keep_without_abstract", "dedupe", "limit")
_CHANGE = (*_READING, "encoder", "tagger", "device", "threads")

GOES_WITH = {
    "append": _CHANGE,
    "update": _CHANGE,
    "sync": (*(name for name in _CHANGE if name != "limit"), "overwrite"),
    "delete": (),
}
"""The options that go with each action, ``--output`` apart; the index determines all others."""

OF_VECTORS = ("encoder", "facets", "tagger", "device", "faiss")
"""Options that apply to vectors only."""

OF_POSTINGS = ("positions", "docvectors")
"""What ``--store`` keeps in Lucene; its other choices are forms of vectors."""

COMMON = (
    *("--corpus", "--output", "--format", "--on-error", "--dedupe", "--only", "--encoder", "--threads"),
    *("--append", "--update", "--sync", "--delete", "--overwrite", "--resume"),
)
"""The options that ``--help`` shows."""

ALIASES = {
    "--ann": "--faiss",
    "--bm25-only": "--only bm25",
    "--columns": "--format table:FIELD=COLUMN,...",
    "--dense-only": "--only dense",
    "--max-rejected": "--on-error skip:SHARE",
    "--precision": "--encoder NAME:PRECISION",
    "--store-docvectors": "--store docvectors",
    "--store-positions": "--store positions",
    "--stored": "--store",
}
"""Former names of options that are no longer taken."""


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    parser = _cli.parser(
        "qbe index",
        "Build an index from a corpus of papers: Lucene postings, contextual sentence vectors in FAISS, the "
        "papers with their sentences' facets, and a manifest. It appears at --output whole or not at all. "
        "With --append, --update, --sync or --delete update the index at --output in one step: open readers "
        "keep what they read, a second writer is refused, and when anything fails the index is unchanged.",
        ALIASES,
        COMMON,
    )
    parser.add_argument(
        "--corpus",
        nargs="+",
        metavar="SOURCE",
        help="files or folders of papers, plain or compressed (.gz, .xz, .zst, .zip), - for standard input, "
        "or an address such as s3://...: JSON lines with paper_id, title, abstract (a string or a list of "
        "sentences) and optionally pred_labels, metadata, or another --format; or a Hugging Face dataset "
        "hf:NAME[:CONFIG][:SPLIT] or a folder of one",
    )
    _reading(parser.add_argument_group("what is read of the corpus"))
    parser.add_argument("--output", required=True, metavar="DIR", help="the index to create or to update")
    _actions(parser.add_mutually_exclusive_group())
    parser.add_argument(
        "--only",
        choices=("bm25", "dense"),
        help="bm25: no vectors; dense: no Lucene postings (needs no Java) (default: both)",
    )
    parser.add_argument(
        "--encoder",
        metavar="NAME[:int8|:fp16|:fp32]",
        help="name in the registry, a folder, or a hub name, and its precision, for papers and later for "
        "queries (default: facet-encoder; int8, on a GPU fp16)",
    )
    parser.add_argument(
        "--device",
        choices=("cpu", "cuda", "auto"),
        help="what runs encoder and tagger: cuda is one NVIDIA GPU, through onnxruntime-gpu; auto is a GPU "
        "that can be used, else the CPU (default: cpu)",
    )
    parser.add_argument(
        "--facets",
        choices=("given", "predicted"),
        help="given: keep the labels that the corpus brings, and predict those of papers without; predicted: "
        "predict all (default: given)",
    )
    parser.add_argument(
        "--tagger", metavar="NAME_OR_FOLDER", help="what predicts facets (default: facet-tagger)"
    )
    parser.add_argument(
        "--store",
        nargs="+",
        choices=("positions", "docvectors", "float16", "int8"),
        help="positions, docvectors: keep term positions, term vectors in Lucene, for other programs; "
        "float16, int8: how vectors are stored, int8 in half the space, with a scale a vector (default: "
        "float16 up to 200,000 sentences, int8 above)",
    )
    parser.add_argument(
        "--faiss",
        metavar="auto|FACTORY",
        help="how FAISS finds candidates, which stored vectors then score exactly: a string of FAISS's index "
        "factory, such as IVF1024,PQ128x4fs (lists of short codes), HNSW32,SQfp16 (a graph) or SQfp16 (all "
        "sentences are compared) (default: auto, SQfp16 up to 200,000 sentences, lists of short codes above)",
    )
    parser.add_argument("--threads", type=int, help="default: all processors this process may use")
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help="replace what is at --output; with --sync delete as many papers as it takes",
    )
    parser.add_argument("--resume", action="store_true", help="go on with an interrupted build")
    return parser


def _reading(group: argparse._ArgumentGroup) -> None:
    """Options of how the corpus is read; None where one was not given."""
    from qbe.corpus import FORMAT_NAMES as FORMATS

    group.add_argument(
        "--format",
        metavar="NAME[:FIELD=COLUMN,...]",
        help=f"of the files: {', '.join(FORMATS)} (default: recognized, each file by itself); of a table "
        "perhaps its columns, as in table:id=key,title=name,abstract=text (default: by their usual names)",
    )
    group.add_argument(
        "--category",
        nargs="+",
        metavar="PATTERN",
        help="keep only papers that have one of these categories, such as 'cs.*'",
    )
    group.add_argument(
        "--on-error",
        metavar="stop|skip[:SHARE]",
        help="at a record that cannot be used: stop, or skip it, listed with the reason in "
        "OUTPUT.rejected.jsonl, and fail where more than this share of at least 100 records had to be "
        "skipped (default: stop; skip:0.01 for files of more than 256 MB)",
    )
    group.add_argument(
        "--keep-without-abstract",
        action="store_true",
        help="keep papers that have a title alone; it stands for the abstract",
    )
    group.add_argument(
        "--dedupe",
        choices=("title", "doi"),
        help="merge papers that repeat the title, year and first author, or the DOI, of one before into it",
    )
    group.add_argument(
        "--limit", type=int, metavar="N", help="read only the first N papers, to try things out"
    )


def _actions(group: argparse._MutuallyExclusiveGroup) -> None:
    """Actions other than building an index."""
    group.add_argument(
        "--append",
        action="store_true",
        help="add the papers of --corpus that the index lacks, with the index's own settings",
    )
    group.add_argument(
        "--update",
        action="store_true",
        help="the same, and replace papers that --corpus has with other content under the same ids",
    )
    group.add_argument(
        "--sync",
        action="store_true",
        help="make the index equal to --corpus, an export of a library: add, replace and delete; papers that "
        "did not change are left alone (--overwrite: also where more than a tenth would be deleted)",
    )
    group.add_argument(
        "--delete", nargs="+", metavar="ID", help="delete papers; @FILE: those of the file, one id a line"
    )


def action(options: argparse.Namespace) -> str | None:
    """Which of GOES_WITH the options name, None for a build; raises UsageError for options that clash."""
    from qbe.errors import UsageError

    present = [name for name, value in vars(options).items() if value is not None and value is not False]
    if options.only == "bm25" and (useless := [name for name in OF_VECTORS if name in present]):
        raise UsageError(f"{_written(useless[0])} is of no use with --only bm25; drop one of them")
    store = options.store or ()
    if {"float16", "int8"} <= {*store}:
        raise UsageError("expected --store float16 or int8, found both; drop one of them")
    for side, useless_choices in (("dense", OF_POSTINGS), ("bm25", ("float16", "int8"))):
        for choice in store:
            if options.only == side and choice in useless_choices:
                raise UsageError(f"--store {choice} is of no use with --only {side}; drop one of them")
    chosen = next((name for name in GOES_WITH if name in present), None)
    if chosen is not None:
        for name in present:
            if name not in ("output", chosen, *GOES_WITH[chosen]):
                raise UsageError(f"{_written(name)} is of no use with --{chosen}; drop one of them")
    if not options.corpus and (chosen is None or "corpus" in GOES_WITH[chosen]):
        raise UsageError(f"expected --corpus with the papers to {chosen or 'index'}, found none; add it")
    reading(options)
    encoder_name, precision = encoder(options)
    if chosen is not None and encoder_name != options.encoder:
        raise UsageError(f"the precision of --encoder is of no use with --{chosen}; drop it")
    if options.device == "cuda" and precision == "int8":
        raise UsageError("--device cuda encodes in fp16 or fp32, found --encoder in int8; drop one of them")
    return chosen


def _written(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def encoder(options: argparse.Namespace) -> tuple[str | None, str]:
    """The encoder's name, None for the default, and its precision, ``auto`` for the device's."""
    name, _, precision = (options.encoder or "").rpartition(":")
    if precision not in ("int8", "fp16", "fp32"):
        return options.encoder, "auto"
    return name or None, precision


def reading(options: argparse.Namespace) -> Reading:
    """How the corpus is read; raises UsageError for values that are not possible."""
    from qbe.corpus.records import Reading
    from qbe.errors import UsageError

    file_format = options.format or ""
    name, with_columns, text = file_format.partition(":")
    columns = {}
    for pair in text.split(",") if with_columns else ():
        field, equals, column = pair.partition("=")
        if not (field.strip() and equals and column.strip()):
            raise UsageError(f"expected --format such as table:id=key,title=name, found {file_format!r}")
        columns[field.strip()] = column.strip()
    on_error, with_share, share = (options.on_error or "").partition(":")
    try:
        max_rejected = {"max_rejected": float(share)} if with_share else {}
        if not all(0 <= value <= 1 for value in max_rejected.values()):
            raise ValueError
    except ValueError:
        raise UsageError(f"expected --on-error such as skip:0.05, found {options.on_error!r}") from None
    if max_rejected and on_error != "skip":
        raise UsageError(f"a share goes with --on-error skip, found {options.on_error!r}; drop it")
    return Reading(
        format=name or None,
        columns=columns,
        categories=tuple(options.category or ()),
        on_error=on_error or None,
        keep_without_abstract=options.keep_without_abstract,
        dedupe=options.dedupe,
        limit=options.limit,
        **max_rejected,
    )


def build_settings(options: argparse.Namespace) -> BuildSettings:
    """The settings of a build."""
    from qbe.index.source import BuildSettings
    from qbe.models.cards import DEFAULT_ENCODER, DEFAULT_TAGGER

    name, precision = encoder(options)
    store = options.store or ()
    return BuildSettings(
        bm25=options.only != "dense",
        dense=options.only != "bm25",
        encoder=name or DEFAULT_ENCODER,
        precision=precision,
        facets=options.facets or "given",
        tagger=options.tagger or DEFAULT_TAGGER,
        positions="positions" in store,
        docvectors="docvectors" in store,
        faiss=options.faiss or "auto",
        stored=next((form for form in store if form not in OF_POSTINGS), "auto"),
        device=options.device or "cpu",
    )


def ids(arguments: Sequence[str]) -> list[str]:
    """Paper ids as given, and for each ``@FILE`` those in the file, one a line; raises FileFormatError for a
    file that cannot be read.
    """
    from qbe.util.text import read_ids

    paper_ids: list[str] = []
    for argument in arguments:
        paper_ids += read_ids(argument[1:]) if argument.startswith("@") else [argument]
    return paper_ids
