"""Test collections as the files of the other commands: corpus, topics, pools, qrels, folds.

`qbe.datasets.registry.write_dataset` writes one of them to a folder.
"""
