"""``python -m qbe.export``: turn PyTorch weights into the ONNX models that qbe runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from qbe import _cli


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
            help="folder with config.json, model.safetensors, tokenizer.json",
        )
        command.add_argument(
            "--output", type=Path, required=True, help="folder to create (replaced when it exists)"
        )
        command.add_argument("--name", help="name of the model (default: the folder's name)")
        command.add_argument(
            "--source", help="where the weights come from, for the card (default: the folder)"
        )
    return parser


def main(argv: list[str]) -> None:
    options = parser().parse_args(argv)
    name = options.name or options.model.resolve().name
    options.action(options.model, name, options.source or str(options.model), options.output)


def _encoder(model: Path, name: str, source: str, output: Path) -> None:
    from qbe.export.encoder import export_encoder

    for precision, figures in export_encoder(model, name, source, output).parity.items():
        print(
            f"{precision}: largest difference {figures['max_abs_difference']:.2g}, "
            f"smallest cosine {figures['min_cosine']:.5f} against PyTorch"
        )


def _cross_encoder(model: Path, name: str, source: str, output: Path) -> None:
    from qbe.export.cross_encoder import export_cross_encoder

    for precision, figures in export_cross_encoder(model, name, source, output).parity.items():
        print(
            f"{precision}: largest difference {figures['max_abs_difference']:.2g}, "
            f"{figures['share_of_spread']:.2g} of the scores' standard deviation, against PyTorch"
        )


if __name__ == "__main__":
    _cli.run("qbe.export", main)
