"""Which models exist, where their files are, and how an ONNX session on them is opened.

A name becomes verified files in one direction: `registry` (names) -> `sources` (package, folder or hub) ->
`exports` (made once, cached) -> `encoder_files`, `reranker_files`, `tagger_files`.
"""
