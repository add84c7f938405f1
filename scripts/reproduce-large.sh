#!/usr/bin/env bash
# CSFCube with the large encoder: dense, fused, and fused reranked by its projections and its grades.
# The base is downloaded and the encoder exported when it is first used (1.5 GB in the cache).
set -euo pipefail

qbe datasets csfcube --output qrels
qbe index --corpus qrels/corpus.jsonl --encoder facet-encoder-large --output runs/indexes/csfcube-large --overwrite
search() { # name of the run, first stage, reranker
    qbe search --index runs/indexes/csfcube-large --topics qrels/topics.tsv --pool qrels/pools.tsv \
        --first-stage "$2" --rerank "$3" --run-tag "$1" --output "runs/csfcube-large.$1.trec" --overwrite
}
search dense dense none
search fused-without-penalty fused:background_penalty=0 none
search fused+projections fused projections
search fused+grades fused grades
qbe evaluate --protocol csfcube --qrels qrels/csfcube.*.qrels --folds qrels/folds.json \
    --run runs/csfcube-large.{dense,fused-without-penalty,fused+projections,fused+grades}.trec \
    --baseline runs/csfcube-large.fused-without-penalty.trec --published --details --output runs/report-large.json --overwrite
