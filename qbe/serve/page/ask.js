// What to search for: a pasted abstract, or a paper of the collection found by its title or id.

import { get, isAborted, upload } from "./api.js";
import { byId, debounced, make } from "./dom.js";

/** An abstract in our own words, to try the page with. */
export const SAMPLE = {
  title: "Screening for diabetic eye disease with few graded photographs",
  text:
    "People with diabetes can lose their sight when damage to the retina is found too late, and there are not enough " +
    "specialists to look at every photograph of an eye. We train a neural network on 150,000 photographs that nobody " +
    "has graded, by asking it which two altered pictures show the same eye. It is then adjusted with a few hundred " +
    "graded photographs. With 500 of them it finds 93 per cent of the eyes that need treatment, as many as a network " +
    "that was given 20,000. A screening programme could therefore begin after some days of grading.",
};

const MOST = 8;

/** Connects both forms; `onText` is called with {text, title}, `onPaper` with the id of a paper. */
export function connect({ onText, onPaper }) {
  const text = byId("text");
  byId("ask-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const isEmpty = !text.value.trim();
    text.setCustomValidity(isEmpty ? "Paste an abstract first." : "");
    if (isEmpty) text.reportValidity();
    else onText({ text: text.value, title: byId("title").value });
  });
  text.addEventListener("input", () => text.setCustomValidity(""));
  byId("ask-form").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) byId("ask-form").requestSubmit();
  });
  byId("sample").addEventListener("click", () => {
    fill(SAMPLE);
    onText(SAMPLE);
  });
  connectFiles(onText);
  connectTitles(onPaper);
}

/** Opens the form and moves the focus to its text. */
export function focusText() {
  byId("ask").open = true;
  byId("text").focus();
}

/** Reads a file that is chosen or dropped, and searches with it; one without an abstract is shown first. */
function connectFiles(onText) {
  const panel = byId("ask");
  const note = byId("file-note");
  let controller = new AbortController();
  const read = async (file) => {
    controller.abort();
    controller = new AbortController();
    const { signal } = controller;
    note.textContent = `Reading ${file.name} …`;
    try {
      const { note: remark, ...paper } = await upload("api/paper-file", file, { signal });
      if (signal.aborted) return;
      fill(paper);
      byId("text").setCustomValidity("");
      note.textContent = remark && `${remark[0].toUpperCase()}${remark.slice(1)}: see whether it will do, then find papers.`;
      if (!remark) onText(paper);
    } catch (error) {
      if (!isAborted(error)) note.textContent = error.message;
    }
  };
  byId("file").addEventListener("change", ({ target }) => {
    if (target.files.length) read(target.files[0]);
    target.value = ""; // so that the same file can be chosen again
  });
  panel.addEventListener("dragover", (event) => {
    if ([...event.dataTransfer.types].includes("Files")) event.preventDefault();
  });
  panel.addEventListener("drop", (event) => {
    const [file] = event.dataTransfer.files;
    if (!file) return;
    event.preventDefault();
    read(file);
  });
}

/** Shows what is searched for in the form. */
export function fill({ text, title }) {
  byId("text").value = text;
  byId("title").value = title;
}

function connectTitles(onPaper) {
  const input = byId("pick");
  const list = byId("pick-list");
  const note = byId("pick-note");
  let found = [];
  let active = -1;
  let controller = new AbortController();

  const choose = (paper) => {
    close();
    input.value = "";
    note.textContent = "";
    onPaper(paper.paper_id);
  };
  const close = () => {
    controller.abort();
    found = [];
    show();
  };
  const show = () => {
    active = -1;
    list.replaceChildren(
      ...found.map((paper, place) =>
        make(
          "li",
          {
            role: "option",
            id: `pick-${place}`,
            "aria-selected": "false",
            onmousedown: (event) => event.preventDefault(), // the focus stays in the input
            onclick: () => choose(paper),
          },
          paper.title || paper.paper_id,
          make("span", { class: "hint" }, ` ${paper.paper_id}`),
        ),
      ),
    );
    list.hidden = !found.length;
    input.setAttribute("aria-expanded", String(found.length > 0));
    input.removeAttribute("aria-activedescendant");
  };
  const move = (step) => {
    if (!found.length) return;
    list.children[active]?.setAttribute("aria-selected", "false");
    active = active < 0 && step < 0 ? found.length - 1 : (active + step + found.length) % found.length;
    const option = list.children[active];
    option.setAttribute("aria-selected", "true");
    option.scrollIntoView({ block: "nearest" });
    input.setAttribute("aria-activedescendant", option.id);
  };
  const complete = async () => {
    controller.abort();
    controller = new AbortController();
    const { signal } = controller;
    const words = input.value.trim();
    if (!words) return close();
    try {
      const { papers } = await get(`api/titles?${new URLSearchParams({ text: words, k: MOST })}`, { signal });
      if (signal.aborted) return undefined;
      found = papers;
      show();
      const many = papers.length === 1 ? "1 paper; choose it" : `${papers.length} papers; choose one`;
      note.textContent = papers.length ? `${many} with the arrow keys and Enter` : "No paper has these words in its title, or this id";
    } catch (error) {
      if (!isAborted(error)) note.textContent = error.message;
    }
    return undefined;
  };

  const completeSoon = debounced(complete, 150);
  input.addEventListener("input", completeSoon);
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown") move(1);
    else if (event.key === "ArrowUp") move(-1);
    else if (event.key === "Escape" && found.length) close();
    else return;
    event.preventDefault();
  });
  byId("pick-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    completeSoon.cancel(); // it would give up the request that is made here
    if (active < 0) await complete();
    if (found.length) choose(found[Math.max(active, 0)]);
    else input.focus();
  });
}
