// Two papers beside each other, facet by facet.

import { isAborted, post } from "./api.js";
import { byId, FACETS, make, tag } from "./dom.js";
import { pair } from "./why.js";

let controller = new AbortController();

export function connect() {
  const dialog = byId("compare");
  dialog.querySelector("[data-close]").addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => controller.abort());
}

/** Opens the comparison of the query (of several papers: the first) with a hit. */
export async function compare(state, hit) {
  controller.abort();
  controller = new AbortController();
  const body = byId("compare-body");
  body.replaceChildren(make("p", { role: "status" }, "Comparing …"));
  byId("compare").showModal();
  const source = state.papers.length ? { paper_id: state.papers[0] } : { text: state.text, title: state.title };
  try {
    const record = await post("api/compare", { ...source, other_id: hit.paper_id }, { signal: controller.signal });
    body.replaceChildren(titles(record), ...FACETS.map((facet) => section(facet, record)));
  } catch (error) {
    if (!isAborted(error)) body.replaceChildren(make("p", { class: "error" }, error.message));
  }
}

const titles = ({ paper, other }) =>
  make(
    "div",
    { class: "pair titles" },
    make("p", {}, make("strong", {}, paper.title || "Your abstract")),
    make("p", {}, make("strong", {}, other.title || other.paper_id)),
  );

function section({ name }, record) {
  const { grade, pair: sentences } = record.facets[name];
  const how = typeof grade === "number" ? `alike ${grade.toFixed(1)} of 3` : "";
  const mine = sentences && record.paper.sentences[sentences.position];
  const others = sentences && record.other.sentences[sentences.other_position];
  return make(
    "section",
    {},
    make("h3", {}, tag(name), " ", make("span", { class: "hint" }, how)),
    sentences
      ? pair(
          { text: sentences.sentence, facet: mine?.facet ?? null },
          { text: sentences.other_sentence, facet: others?.facet ?? null },
          [record.paper.paper_id ? "First paper" : "Your abstract", "Second paper"],
        )
      : make("p", { class: "hint" }, "There is no sentence of this kind to compare."),
  );
}
