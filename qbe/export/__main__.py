"""``python -m qbe.export``: turn PyTorch weights into the ONNX models that qbe runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from qbe import _cli
from qbe.models.encoder_format import DEFAULT_FORMAT, LAYOUTS, POOLINGS, SIMILARITIES, EncoderFormat


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    parser = argparse.ArgumentParser(prog="python -m qbe.export", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    kinds = {
        "encoder": ("a sentence encoder of the BERT family", _encoder),
        "cross-encoder": ("a reranker: a BERT-family sequence classifier of text pairs", _cross_encoder),
    }
    for name, (text, action) in kinds.items():
        command = commands.add_parser(name, help=text)
        command.set_defaults(action=action)
        command.add_argument(
            "--model",
            type=Path,
            required=True,
            help="folder with config.json, model.safetensors (of an encoder also pytorch_model.bin), "
            "tokenizer.json (of an encoder also vocab.txt)",
        )
        command.add_argument(
            "--output", type=Path, required=True, help="folder to create (replaced when it exists)"
        )
        command.add_argument("--name", help="name of the model (default: the folder's name)")
        command.add_argument(
            "--source", help="where the weights come from, for the card (default: the folder)"
        )
        if name == "encoder":
            _reading(
                command.add_argument_group("how it is read (default: as the folder states, else the first)")
            )
    return parser


def _reading(group: argparse._ArgumentGroup) -> None:
    """Options of the convention; None tells that one was not given."""
    group.add_argument(
        "--layout",
        choices=LAYOUTS,
        help="what a pass holds: title and abstract, the same with [SEP] between them, or a sentence alone",
    )
    group.add_argument(
        "--pooling",
        choices=POOLINGS,
        help="of a whole paper, and of sentences read alone: mean of the tokens, or the first ([CLS])",
    )
    group.add_argument(
        "--similarity",
        choices=SIMILARITIES,
        help="cosine of vectors of unit length, or minus the distance of vectors as they are",
    )
    group.add_argument(
        "--max-tokens",
        type=int,
        metavar="N",
        help="of a pass (default: as the folder states, else 0: as many as the model has positions)",
    )
    group.add_argument(
        "--adapter", type=Path, metavar="DIR", help="a bottleneck adapter as the adapters library lays it out"
    )


def main(argv: list[str]) -> None:
    options = parser().parse_args(argv)
    options.name = options.name or options.model.resolve().name
    options.source = options.source or str(options.model)
    options.action(options)


def _encoder(options: argparse.Namespace) -> None:
    convention = _convention(options)
    from qbe.export.encoder import export_encoder

    card = export_encoder(
        options.model, options.name, options.source, options.output, convention, options.adapter
    )
    for precision, figures in card.parity.items():
        print(
            f"{precision}: largest difference {figures['max_abs_difference']:.2g}, "
            f"smallest cosine {figures['min_cosine']:.5f} against PyTorch"
        )


def _convention(options: argparse.Namespace) -> EncoderFormat:
    """The options given, for the rest what the folder states, else the default."""
    base = None
    if None in (options.layout, options.pooling, options.similarity, options.max_tokens):
        from qbe.models.stated import stated_convention

        base = stated_convention(options.model)
    base = base or DEFAULT_FORMAT
    limit = base.max_tokens if options.max_tokens is None else options.max_tokens
    return EncoderFormat.pooled(
        options.layout or base.layout,
        options.pooling or base.whole,
        options.similarity or base.similarity,
        limit or None,
    )


def _cross_encoder(options: argparse.Namespace) -> None:
    from qbe.export.cross_encoder import export_cross_encoder

    card = export_cross_encoder(options.model, options.name, options.source, options.output)
    for precision, figures in card.parity.items():
        print(
            f"{precision}: largest difference {figures['max_abs_difference']:.2g}, "
            f"{figures['share_of_spread']:.2g} of the scores' standard deviation, against PyTorch"
        )


if __name__ == "__main__":
    _cli.run("qbe.export", main)
