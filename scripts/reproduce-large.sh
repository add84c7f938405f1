#!/usr/bin/env bash
# CSFCube with the large encoder: dense, fused, and fused reranked by the small rerankers. The base is downloaded
# and the encoder exported when it is first used (1 GB in the cache).
set -euo pipefail

qbe datasets csfcube --output qrels
qbe index --corpus qrels/corpus.jsonl --encoder facet-encoder-large --output indexes/csfcube-large --overwrite
for facet in background method result; do
    for search in dense+none fused+none fused+cross-encoder; do
        stage=${search%%+*} rerank=${search#*+}
        name=$([ "$rerank" = none ] && echo "csfcube-large.$stage" || echo "csfcube-large.$stage+rerank")
        qbe search --index indexes/csfcube-large --topics qrels/topics.tsv --pool qrels/pools.tsv \
            --facet "$facet" --first-stage "$stage" --rerank "$rerank" --output "runs/$name.$facet.trec"
    done
done
qbe evaluate --protocol csfcube --qrels qrels/csfcube.*.qrels --folds qrels/folds.json \
    --run runs/csfcube-large.{dense,fused,fused+rerank}.*.trec \
    --baseline runs/csfcube-large.fused.*.trec --published --output runs/report-large.json
