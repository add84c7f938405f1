#!/usr/bin/env bash
# Reproduces the main figures: the collection in the package (mini) and, where it is at hand ($QBE_DATA/csfcube) or can
# be downloaded, CSFCube: an index, runs of every first stage and facet without and with reranking, a table of each.
# Everything else that it makes stays in runs/.
set -euo pipefail
log=runs/reproduce.log
mkdir -p runs
: > "$log"

quietly() { "$@" < /dev/null >> "$log" 2>&1 || { tail -n 5 "$log" >&2; echo "failed: $* (all output: $log)" >&2; exit 1; }; }
heading() { echo "== $* ==" | tee -a "$log" >&2; }

plain=fused:background_penalty=0
systems=("bm25 bm25 none" "dense dense none" "fused-without-penalty $plain none"
    "fused+projections fused projections" "fused+grades fused grades" "fused+joint fused grades:joint=20") # name, first stage, reranker

# Indexes a collection, makes its six runs, prints its table: its name, its folder, its index, options of the table.
evaluate() {
    local name=$1 folder=$2 index=$3 runs=() began=$SECONDS system first_stage rerank
    quietly qbe index --corpus "$folder/corpus.jsonl" --output "$index" --overwrite
    while read -r system first_stage rerank; do
        quietly qbe search --index "$index" --topics "$folder/topics.tsv" --pool "$folder/pools.tsv" --run-tag "$name.$system" \
            --output "runs/$name.$system.trec" --overwrite --first-stage "$first_stage" --rerank "$rerank"
        runs+=("runs/$name.$system.trec")
    done < <(printf '%s\n' "${systems[@]}")
    local command=(qbe evaluate --protocol csfcube --qrels "$folder/$name".*.qrels --folds "$folder/folds.json"
        --run "${runs[@]}" --baseline "runs/$name.bm25.trec" "${@:4}")
    "${command[@]}" --output "runs/$name.json" --plot "runs/$name.svg" --overwrite > "runs/$name.txt" 2>> "$log"
    "${command[@]}" --details > "runs/$name.details.txt" 2>> "$log"
    sed "s/$name\.//g; 1s/^/$name, in $((SECONDS - began)) s: /; /^$/d" "runs/$name.txt" |
        grep -v "^dense: \|^fused+projections\|^fused+grades: \|^fused-without-penalty: "
}

missing=$(qbe datasets csfcube --output qrels --overwrite 2>&1 >> "$log") && missing=""
missing=${missing##*qbe datasets csfcube: }
folder=qrels/mini index=runs/indexes/mini names="mini csfcube" minutes="four minutes in all"
if [ -n "$missing" ]; then # mini's is the only index, and what commands take that are given none
    quietly qbe datasets mini --output qrels --overwrite
    index=indexes/mini names=mini minutes="nothing else: CSFCube is not at hand"
fi
quietly qbe datasets mini --output $folder --overwrite
heading "mini, in the package: 3,000 papers to index, six runs of 120 queries by facet: two minutes; $minutes"
evaluate mini $folder $index
if [ -z "$missing" ]; then
    heading "CSFCube: 4,205 papers to index, six runs of 50 queries by facet: two minutes"
    evaluate csfcube qrels indexes/csfcube --published
fi
echo "fused+joint is what qbe search does by default, fused-without-penalty --first-stage $plain --rerank none.
No constant was fitted to CSFCube's test folds; docs/reproduce.md says which data chose which. A search:"
COLUMNS=120 qbe search --index $index --paper 1904.00842 --facet method --hits 1 --format table | sed '/^$/d'
echo "runs/ has all else (NAME.details.txt, NAME.json, NAME.svg); make reproduce-all makes the other tables of docs/reproduce.md."
python -m scripts.runs --compare $names
[ -z "$missing" ] || echo "CSFCube was not at hand (${missing%%;*}): put it into \$QBE_DATA/csfcube and repeat."
