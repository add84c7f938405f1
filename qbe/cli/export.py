"""``qbe export``: turn PyTorch weights into the ONNX models that qbe runs."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from qbe.cli.parser import parse

if TYPE_CHECKING:
    from qbe.models.formats import EncoderFormat


def main(arguments: list[str]) -> None:
    options = parse("export", arguments)

    model, output = Path(options.model), Path(options.output)
    name, source = options.name or model.resolve().name, options.source or str(model)
    if options.command == "encoder":
        encoder_format = format_of(options)
        from qbe.models.export.encoder import export_encoder

        adapter, graph = (Path(path) if path else None for path in (options.adapter, options.graph))
        parity = export_encoder(model, name, source, output, encoder_format, adapter, graph).parity
        original = "fp32" if graph else "PyTorch"
        told = f"smallest cosine {{min_cosine:.5f}} against {original}"
    else:
        from qbe.models.export.encoder import export_cross_encoder

        parity = export_cross_encoder(model, name, source, output).parity
        told = "{share_of_spread:.2g} of the scores' standard deviation, against PyTorch"
    for precision, figures in parity.items():
        difference = f"largest difference {figures['max_abs_difference']:.2g}"
        print(f"{precision}: {difference}, {told.format(**figures)}")


def format_of(options: argparse.Namespace) -> "EncoderFormat":
    """The format that the options give; the rest is as the folder declares it, else the default."""
    from qbe.models.formats import DEFAULT_FORMAT, EncoderFormat, declared_format

    base = DEFAULT_FORMAT
    if None in (options.layout, options.pooling, options.similarity, options.max_tokens):
        base = declared_format(Path(options.model)) or base
    return EncoderFormat(
        options.layout or base.layout,
        options.pooling or base.whole,
        options.similarity or base.similarity,
        (base.max_tokens if options.max_tokens is None else options.max_tokens) or None,
    )
