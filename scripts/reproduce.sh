#!/usr/bin/env bash
# Reproduces the main figures: collection, index, runs of every first stage and facet without and with
# reranking, tables, a plot of the differences. It uses CSFCube ($QBE_DATA/csfcube, or downloaded), or else the
# sample in the package.
set -euo pipefail

if qbe datasets csfcube --output qrels; then
    name=csfcube published=--published
else
    name=sample published=
    qbe datasets sample --output qrels
    echo "CSFCube is not available. The following is the sample in the package: demonstration data, not a benchmark."
fi

# Searches by every facet: index folder, name of the run, first stage, reranker.
search() {
    qbe search --index "$1" --topics qrels/topics.tsv --pool qrels/pools.tsv --run-tag "$2" \
        --output "runs/$2.trec" --overwrite --first-stage "$3" --rerank "$4"
}
plain=fused:background_penalty=0 # the row "fused"

qbe index --corpus qrels/corpus.jsonl --output "indexes/$name" --overwrite
search "indexes/$name" "$name.bm25" bm25 none
search "indexes/$name" "$name.dense" dense none
search "indexes/$name" "$name.fused" $plain none
search "indexes/$name" "$name.fused+projections" fused projections
search "indexes/$name" "$name.fused+grades" fused grades

echo "First stages without and with reranking, compared with fused:"
qbe evaluate --protocol csfcube --qrels qrels/"$name".*.qrels --folds qrels/folds.json \
    --run runs/"$name".{bm25,dense,fused,fused+projections,fused+grades}.trec \
    --baseline runs/"$name".fused.trec $published --output runs/report.json --overwrite --plot runs/report.svg

qbe evaluate --protocol csfcube --qrels qrels/"$name".*.qrels --folds qrels/folds.json \
    --run runs/"$name".fused+grades.trec --baseline runs/"$name".fused.trec \
    --worst 10 --corpus qrels/corpus.jsonl > runs/worst.txt
echo "The ten worst queries: runs/worst.txt"

# Where the facets of two papers disagree for people: papers that were judged for two facets.
if [ "$name" = csfcube ]; then
    echo "Pairs of papers of which each is better for one facet:"
    qbe evaluate --protocol crossed --qrels qrels/csfcube.*.qrels \
        --run runs/csfcube.{bm25,dense,fused,fused+projections,fused+grades}.trec --output runs/crossed.json --overwrite
    for liked in background method result; do
        for disliked in background method result; do
            [ $liked = $disliked ] && continue
            topics="qrels/topics.$liked-not-$disliked.tsv"
            awk -F '\t' -v liked=$liked -v disliked=$disliked \
                'NR == FNR { judged[$2, $3]; next } FNR == 1 || ($3 == liked && ($2, disliked) in judged)' \
                qrels/topics.tsv qrels/topics.tsv > "$topics"
            qbe search --index indexes/csfcube --topics "$topics" --pool qrels/pools.tsv \
                --like $liked --unlike $disliked --output "runs/csfcube.grades.$liked-not-$disliked.trec" --overwrite
        done
    done
    echo "One facet liked, another disliked:"
    qbe evaluate --protocol exploration --qrels qrels/csfcube.*.qrels \
        --run runs/csfcube.grades.*-not-*.trec runs/csfcube.{bm25,dense,fused+projections}.trec \
        --baseline runs/csfcube.fused.trec --output runs/explored.json --overwrite
fi

# The same from raw text: each abstract is one string, qbe splits sentences and predicts facets.
qbe datasets "$name" --raw --output qrels/raw
qbe index --corpus qrels/raw/corpus.jsonl --output "indexes/$name-raw" --overwrite
search "indexes/$name-raw" "$name-raw.bm25" bm25 none
search "indexes/$name-raw" "$name-raw.dense" dense none
search "indexes/$name-raw" "$name-raw.fused" $plain none

echo "With predicted facets, from raw text:"
qbe evaluate --protocol csfcube --qrels qrels/"$name".*.qrels --folds qrels/folds.json \
    --run runs/"$name".fused.trec runs/"$name"-raw.{bm25,dense,fused}.trec \
    --baseline runs/"$name".fused.trec --output runs/report-raw.json --overwrite

# Citation recommendation, where its collection is at hand: first stages, then judged by the citation model,
# without and with what papers of the index cite.
if [ -d "${QBE_DATA:-}/citations" ]; then
    qbe datasets citations --output qrels/citations --overwrite
    qbe index --corpus qrels/citations/papers.jsonl --output indexes/citations --overwrite
    recommend() {  # the name of the run, command, options
        qbe "$2" --index indexes/citations --topics qrels/citations/topics.dev.tsv \
            --run-tag "$1" --output "runs/citations.$1.trec" --overwrite "${@:3}"
    }
    for stage in bm25 fused; do
        recommend $stage search --first-stage $stage --rerank none --year query
    done
    recommend text cite --before query --no-links
    recommend links cite --before query
    echo "Citation recommendation, dev of citations:"
    qbe evaluate --protocol citations --qrels qrels/citations/dev.qrels --published \
        --run runs/citations.{bm25,fused,text,links}.trec --baseline runs/citations.fused.trec
fi
