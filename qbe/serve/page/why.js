// Pairs of sentences side by side, with the words that they have in common marked.

import { FACETS, make, tag } from "./dom.js";

const COMMON = new Set(
  ("about above after again all also among and any are as at because been before being between both but by can could did " +
    "does each first for from given had has have her his how into its more most new not of off on one only other our out " +
    "over own per several should show shows some such than that the their them then there these they this those three " +
    "through thus to two under upon use used using very was way we well were what when where whether which while who whose " +
    "will with without within would you").split(" "),
);
const WORD = /[\p{L}\p{N}]+/gu;

/** The form in which words are compared: without the s of a plural. */
const stem = (word) => word.toLowerCase().replace(/(?<=[^s]{3})s$/, "");

function stems(text) {
  const words = (text.match(WORD) ?? []).filter((word) => word.length > 2 && !COMMON.has(word.toLowerCase()));
  return new Set(words.map(stem));
}

/** A text with the words marked that another one has as well. */
function marked(text, other) {
  const shared = stems(other);
  const parts = [];
  let end = 0;
  for (const { 0: word, index } of text.matchAll(WORD)) {
    if (word.length < 3 || COMMON.has(word.toLowerCase()) || !shared.has(stem(word))) continue;
    parts.push(text.slice(end, index), make("mark", {}, word));
    end = index + word.length;
  }
  return [...parts, text.slice(end)];
}

/** Two sentences beside each other; each is `{text, facet}` (facet undefined: not shown). */
export function pair(mine, other, headings) {
  const side = (sentence, heading, counterpart) =>
    make(
      "div",
      {},
      make("p", { class: "whose" }, heading, " ", sentence.facet === undefined ? null : tag(sentence.facet)),
      make("p", {}, marked(sentence.text, counterpart.text)),
    );
  return make("div", { class: "pair" }, side(mine, headings[0], other), side(other, headings[1], mine));
}

const WIDTH = 60;
const MOST = 3;

/** Grades by facet, each as a bar with its number; null where there are none. */
export function gradeBars(grades) {
  if (!grades) return null;
  const rows = FACETS.filter(({ name }) => typeof grades[name] === "number").map(({ name, shown, style }) => {
    const bar = make("span", { class: `bar ${style}`, "aria-hidden": "true" });
    const fill = make("span", {});
    fill.style.width = `${(Math.min(Math.max(grades[name], 0), MOST) / MOST) * WIDTH}px`;
    bar.append(fill);
    return make("div", {}, make("dt", {}, shown), make("dd", {}, bar, `${grades[name].toFixed(1)}`, of()));
  });
  return make("dl", { class: "grades", title: "How alike, from 0 to 3" }, rows);
}

const of = () => make("span", { class: "of" }, ` of ${MOST}`);
