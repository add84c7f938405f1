"""``qbe export``: turn PyTorch weights into the ONNX models that qbe runs."""

from __future__ import annotations

from qbe.cli import common as _cli
from qbe.cli.export_options import PROGRAM, parser

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from qbe.models.formats import EncoderFormat

OPTIONS: dict[str, str] = {"folder": "--model"}


def main(arguments: list[str]) -> None:
    options = parser().parse_args(arguments)
    from pathlib import Path

    model, output = Path(options.model), Path(options.output)
    name, source = options.name or model.resolve().name, options.source or str(model)
    if options.kind == "encoder":
        encoder_format = format_of(options)
        from qbe.models.export.encoder import export_encoder

        adapter, graph = (Path(path) if path else None for path in (options.adapter, options.graph))
        original = "fp32" if graph else "PyTorch"
        for precision, figures in export_encoder(
            model, name, source, output, encoder_format, adapter, graph
        ).parity.items():
            print(
                f"{precision}: largest difference {figures['max_abs_difference']:.2g}, "
                f"smallest cosine {figures['min_cosine']:.5f} against {original}"
            )
    else:
        from qbe.models.export.encoder import export_cross_encoder

        for precision, figures in export_cross_encoder(model, name, source, output).parity.items():
            print(
                f"{precision}: largest difference {figures['max_abs_difference']:.2g}, "
                f"{figures['share_of_spread']:.2g} of the scores' standard deviation, against PyTorch"
            )


def format_of(options: argparse.Namespace) -> EncoderFormat:
    """The format that the options give; the rest is as the folder declares it, else the default."""
    from qbe.models.formats import DEFAULT_FORMAT, EncoderFormat

    base = None
    if None in (options.layout, options.pooling, options.similarity, options.max_tokens):
        from pathlib import Path

        from qbe.models.formats import declared_format

        base = declared_format(Path(options.model))
    base = base or DEFAULT_FORMAT
    limit = base.max_tokens if options.max_tokens is None else options.max_tokens
    return EncoderFormat.pooled(
        options.layout or base.layout,
        options.pooling or base.whole,
        options.similarity or base.similarity,
        limit or None,
    )


if __name__ == "__main__":
    _cli.run(PROGRAM, main, OPTIONS)
