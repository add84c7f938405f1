// Papers that were put into the basket, and papers that are left out: their lists, and export.

import { download, get } from "./api.js";
import { byId, make } from "./dom.js";

const titles = new Map(); // by id, of all papers that were seen

/** Keeps the titles of papers, to show them in lists of ids. */
export function remember(papers) {
  for (const paper of papers) if (paper.paper_id) titles.set(paper.paper_id, paper.title || paper.paper_id);
}

/** The basket's list; `index` is what the server says of its index, `onRemove` is called with an id. */
export function showBasket(state, index, onRemove) {
  const isEmpty = !state.basket.length;
  byId("basket-count").textContent = String(state.basket.length);
  byId("basket-empty").hidden = !isEmpty;
  byId("basket-body").hidden = isEmpty;
  byId("basket-list").replaceChildren(...state.basket.map((id) => entry(id, "Remove", () => onRemove(id))));
  const hasOne = Boolean(state.text) || state.papers.length === 1;
  byId("basket-cite").disabled = !hasOne || index.citations === false;
  byId("basket-cite-hint").textContent = citeHint(hasOne, index);
}

function citeHint(hasOne, index) {
  if (index.citations === false) return "This index does not have what recommending citations needs.";
  return hasOne
    ? "Papers that your query should cite besides those in the basket."
    : "Paste your abstract above to have citations recommended.";
}

/** The list of papers that are left out of the hits. */
export function showLeftOut(state, onBack) {
  const ids = [...state.not, ...state.seen];
  byId("left-out").hidden = !ids.length;
  byId("left-out-count").textContent = String(ids.length);
  byId("left-out-list").replaceChildren(
    ...ids.map((id) => entry(id, "Bring back", () => onBack(id), state.not.includes(id) ? "not like this" : "seen")),
  );
}

/** The papers that the query is not like, beside those that it is like. */
export function showUnwanted(state, onDrop) {
  byId("query-not").replaceChildren(...state.not.map((id) => entry(id, "Drop", () => onDrop(id), "not like this")));
}

function entry(id, action, onAction, remark = "") {
  const title = make("span", {}, titles.get(id) ?? id);
  if (!titles.has(id)) {
    get(`api/papers?paper_id=${encodeURIComponent(id)}`).then(
      (paper) => {
        remember([paper]);
        title.textContent = titles.get(id);
      },
      () => {
        title.textContent = `${id} (not in this collection)`;
      },
    );
  }
  const shown = make("span", {}, title, remark && make("span", { class: "hint" }, ` (${remark})`));
  return make(
    "li",
    { class: "between" },
    shown,
    make(
      "button",
      { type: "button", class: "link", "data-focus": `${action} ${id}`, onclick: onAction },
      action,
      make("span", { class: "unseen" }, ` ${titles.get(id) ?? id}`),
    ),
  );
}

/** Saves the papers of the basket as a file. */
export async function exportBasket(state) {
  const note = byId("basket-note");
  try {
    const file = await download("api/export", { paper_ids: state.basket, format: byId("format").value });
    const address = URL.createObjectURL(file.content);
    make("a", { href: address, download: file.name }).click();
    setTimeout(() => URL.revokeObjectURL(address), 60_000);
    note.textContent = `Saved as ${file.name}`;
  } catch (error) {
    note.textContent = error.message;
  }
}
