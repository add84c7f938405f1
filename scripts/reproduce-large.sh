#!/usr/bin/env bash
# CSFCube with the large encoder: dense, fused, and fused reranked by its projections, by the small cross-encoders
# and by both. The base is downloaded and the encoder exported when it is first used (1.5 GB in the cache).
set -euo pipefail

qbe datasets csfcube --output qrels
qbe index --corpus qrels/corpus.jsonl --encoder facet-encoder-large --output indexes/csfcube-large --overwrite
for search in dense+none fused+none fused+cross-encoder fused+projections fused+cascade; do
    stage=${search%%+*} rerank=${search#*+}
    case $rerank in
        none) name=$stage ;;
        cross-encoder) name=$stage+rerank ;;
        *) name=$search ;;
    esac
    qbe search --index indexes/csfcube-large --topics qrels/topics.tsv --pool qrels/pools.tsv \
        --first-stage "$stage" --rerank "$rerank" --output "runs/csfcube-large.$name.trec"
done
qbe evaluate --protocol csfcube --qrels qrels/csfcube.*.qrels --folds qrels/folds.json \
    --run runs/csfcube-large.{dense,fused,fused+rerank,fused+projections,fused+cascade}.trec \
    --baseline runs/csfcube-large.fused.trec --published --output runs/report-large.json
