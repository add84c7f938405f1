#!/usr/bin/env bash
# The other tables of docs/reproduce.md, of the indexes and runs of `make reproduce`, which is run first where they are
# not there: the worst queries, facets that disagree, raw text, citations. Each is a file in runs/.
set -Eeuo pipefail
[ -e runs/csfcube.json ] || bash scripts/reproduce.sh
[ -e runs/csfcube.json ] || { echo "the other tables need CSFCube, too" >&2; exit 1; }
log=runs/reproduce.log
exec 3>&2 >> "$log" 2>&1
trap 'tail -n 5 "$log" >&3; echo "failed (all output: $log)" >&3' ERR
phase() { echo "== $* ==" | tee -a /dev/fd/3; }

search() {
    qbe search --index "$1" --topics qrels/topics.tsv --pool qrels/pools.tsv --run-tag "$2" \
        --output "runs/$2.trec" --overwrite --first-stage "$3" --rerank "$4"
}
plain=fused:background_penalty=0
runs=(runs/csfcube.{bm25,dense,fused-without-penalty,fused+projections,fused+grades,fused+joint}.trec)

phase "runs/worst.txt, runs/crossed.txt, runs/explored.txt: a minute and a half"
qbe evaluate --protocol csfcube --qrels qrels/csfcube.*.qrels --folds qrels/folds.json \
    --run runs/csfcube.fused+grades.trec --baseline runs/csfcube.fused-without-penalty.trec \
    --worst 10 --corpus qrels/corpus.jsonl > runs/worst.txt

# Where the facets of two papers disagree for people: papers that were judged for two facets.
qbe evaluate --protocol crossed --qrels qrels/csfcube.*.qrels --run "${runs[@]}" --output runs/crossed.json \
    --overwrite > runs/crossed.txt
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
qbe evaluate --protocol exploration --qrels qrels/csfcube.*.qrels \
    --run runs/csfcube.grades.*-not-*.trec runs/csfcube.{bm25,dense,fused+projections}.trec \
    --baseline runs/csfcube.fused-without-penalty.trec --output runs/explored.json --overwrite --details > runs/explored.txt

# The same from raw text: each abstract is one string, qbe splits sentences and predicts facets.
phase "runs/raw.txt: a minute and a half"
qbe datasets csfcube --raw --output qrels/raw
qbe index --corpus qrels/raw/corpus.jsonl --output runs/indexes/csfcube-raw --overwrite
search runs/indexes/csfcube-raw csfcube-raw.bm25 bm25 none
search runs/indexes/csfcube-raw csfcube-raw.dense dense none
search runs/indexes/csfcube-raw csfcube-raw.fused-without-penalty $plain none
qbe evaluate --protocol csfcube --qrels qrels/csfcube.*.qrels --folds qrels/folds.json \
    --run runs/csfcube.fused-without-penalty.trec runs/csfcube-raw.{bm25,dense,fused-without-penalty}.trec \
    --baseline runs/csfcube.fused-without-penalty.trec --output runs/raw.json --overwrite --details > runs/raw.txt

# Citation recommendation: first stages, then judged by the citation model, without and with what papers cite.
[ -d "${QBE_DATA:-}/citations" ] || { phase "no runs/citations.txt: \$QBE_DATA/citations is not there"; exit 0; }
phase "runs/citations.txt: four and a half minutes"
qbe datasets citations --output qrels/citations --overwrite
qbe index --corpus qrels/citations/papers.jsonl --output runs/indexes/citations --overwrite
recommend() {  # the name of the run, command, options
    qbe "$2" --index runs/indexes/citations --topics qrels/citations/topics.dev.tsv \
        --run-tag "$1" --output "runs/citations.$1.trec" --overwrite "${@:3}"
}
for stage in bm25 fused; do
    recommend $stage search --first-stage $stage --rerank none --year query
done
recommend text cite --before query --no-links
recommend links cite --before query
qbe evaluate --protocol citations --qrels qrels/citations/dev.qrels --published --details \
    --run runs/citations.{bm25,fused,text,links}.trec --baseline runs/citations.fused.trec > runs/citations.txt
