"""The options of ``qbe export``."""

from __future__ import annotations

import argparse

from qbe.cli import common as _cli

PROGRAM = "qbe export"
KINDS = {
    "encoder": "a sentence encoder of the BERT family",
    "cross-encoder": "a reranker: a BERT-family sequence classifier of text pairs",
}
LAYOUTS = ("title-abstract", "title-sep-abstract", "sentences")
POOLINGS = ("mean", "cls")
SIMILARITIES = ("cosine", "l2")


def parser() -> argparse.ArgumentParser:
    """The command's options; ``kind`` is one of KINDS.

    >>> options = parser().parse_args(["cross-encoder", "--model", "weights", "--output", "onnx"])
    >>> options.kind, options.model, options.name
    ('cross-encoder', 'weights', None)
    """
    parser = _cli.parser(PROGRAM, "Turn PyTorch weights into the ONNX models that qbe runs.")
    commands = parser.add_subparsers(dest="kind", required=True)
    for kind, description in KINDS.items():
        command = commands.add_parser(kind, help=description, description=f"Export {description}.")
        command.add_argument(
            "--model",
            required=True,
            metavar="DIR",
            help="folder with config.json, model.safetensors (of an encoder also pytorch_model.bin), "
            "tokenizer.json (of an encoder also vocab.txt)",
        )
        command.add_argument(
            "--output", required=True, metavar="DIR", help="folder to create (replaced when it exists)"
        )
        command.add_argument("--name", help="name of the model (default: the folder's name)")
        command.add_argument(
            "--source", help="where the weights come from, for the metadata (default: the folder)"
        )
        if kind == "encoder":
            command.add_argument(
                "--graph",
                metavar="FILE",
                help="the traced model without its weights, as qbe train large-encoder writes it; then "
                "PyTorch is not needed",
            )
            _encoder_format(
                command.add_argument_group(
                    "encoder format (default: as a sentence-transformers folder declares it, else the first)"
                )
            )
    return parser


def _encoder_format(group: argparse._ArgumentGroup) -> None:
    """Options of the encoder format; None stands for one that was not given."""
    group.add_argument(
        "--layout",
        choices=LAYOUTS,
        help="input of a pass: title and abstract, the same with [SEP] between them, or single sentences",
    )
    group.add_argument(
        "--pooling",
        choices=POOLINGS,
        help="of a whole paper, and of single sentences: mean of the tokens, or the first ([CLS])",
    )
    group.add_argument(
        "--similarity",
        choices=SIMILARITIES,
        help="cosine of vectors of unit length, or minus the distance of unscaled vectors",
    )
    group.add_argument(
        "--max-tokens",
        type=int,
        metavar="N",
        help="limit of a pass (default: as the folder declares it, else 0: the model's number of positions)",
    )
    group.add_argument("--adapter", metavar="DIR", help="a bottleneck adapter of the adapters library")
