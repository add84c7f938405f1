#!/usr/bin/env bash
# The main job: collection, index, runs of every first stage and facet, each alone and reranked, tables, plot.
# CSFCube where it can be had ($QBE_DATA/csfcube, or downloaded), else the embedded sample.
set -euo pipefail

if python -m qbe.datasets csfcube --output qrels; then
    name=csfcube published=--published
else
    name=sample published=
    python -m qbe.datasets sample --output qrels
    echo "CSFCube could not be had: what follows is the embedded sample, which demonstrates and proves nothing."
fi

# Searches every facet with a first stage: index folder, first stage, reranker, name of the runs.
search() {
    for facet in background method result; do
        python -m qbe.search --index "$1" --topics qrels/topics.tsv --pool qrels/pools.tsv \
            --facet "$facet" --first-stage "$2" --rerank "$3" --output "runs/$4.$facet.trec"
    done
}

python -m qbe.index --corpus qrels/corpus.jsonl --output "indexes/$name" --overwrite
for stage in bm25 dense fused; do
    search "indexes/$name" $stage none "$name.$stage"
    search "indexes/$name" $stage cross-encoder "$name.$stage+rerank"
done

echo "First stages alone and reranked, tested against fused:"
python -m qbe.evaluate --protocol csfcube --qrels qrels/"$name".*.qrels --folds qrels/folds.json \
    --run runs/"$name".{bm25,bm25+rerank,dense,dense+rerank,fused,fused+rerank}.*.trec \
    --baseline runs/"$name".fused.*.trec $published --output runs/report.json

python -m qbe.evaluate --protocol csfcube --qrels qrels/"$name".*.qrels --folds qrels/folds.json \
    --run runs/"$name".fused+rerank.*.trec --baseline runs/"$name".fused.*.trec \
    --plot runs/rerank.svg --worst 10 --corpus qrels/corpus.jsonl > runs/worst.txt
echo "Gain and loss of each query: runs/rerank.svg; the ten worst queries: runs/worst.txt"

# The same from raw text: abstracts in one string, sentences and facets found by qbe.
python -m qbe.datasets "$name" --raw --output qrels/raw
python -m qbe.index --corpus qrels/raw/corpus.jsonl --output "indexes/$name-raw" --overwrite
for stage in bm25 dense fused; do
    search "indexes/$name-raw" $stage none "$name-raw.$stage"
done
search "indexes/$name-raw" fused cross-encoder "$name-raw.fused+rerank"

echo "With predicted facets, from raw text:"
python -m qbe.evaluate --protocol csfcube --qrels qrels/"$name".*.qrels --folds qrels/folds.json \
    --run runs/"$name".fused.*.trec runs/"$name"-raw.{bm25,dense,fused,fused+rerank}.*.trec \
    --baseline runs/"$name".fused.*.trec --output runs/report-raw.json
