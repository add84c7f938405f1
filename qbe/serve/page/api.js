// Talks to the server this page came from.

import { byId } from "./dom.js";
import { onPage, parsed } from "./plain.js";

const KEY = "qbe-api-key";
const MOST_TRIES = 8;

/** What the server, or the way to it, says is wrong: one line for people. */
export class ServerError extends Error {
  constructor(message) {
    super(onPage(message));
  }
}

export const isAborted = (error) => error.name === "AbortError";

/** The answer to a GET request, as a value. `options`: see `ask`. */
export async function get(path, options) {
  return parsed(await (await ask(path, {}, options)).text());
}

/** The answer to a POST request, as a value. */
export async function post(path, body, options) {
  return parsed(await (await ask(path, posted(body), options)).text());
}

/** What the server reads in a file. */
export async function upload(path, file, options) {
  const request = { method: "POST", body: file, headers: { "Content-Type": "application/octet-stream" } };
  return (await ask(`${path}?${new URLSearchParams({ name: file.name.slice(-300) })}`, request, options)).json();
}

/** A file that the server makes: its content and its name. */
export async function download(path, body, options) {
  const response = await ask(path, posted(body), options);
  const name = /filename="?([^";]+)"?/.exec(response.headers.get("Content-Disposition") ?? "");
  return { content: await response.blob(), name: name ? name[1] : "papers.txt" };
}

/** The rankings of a search, as they come: the first one at once, then the reranked one. */
export async function* rankings(body, options) {
  const response = await ask("api/search/stream", posted(body), options);
  for await (const { event, data } of events(response.body)) {
    if (event === "ranking") yield parsed(data);
    if (event === "error") throw new ServerError(JSON.parse(data).error.message);
  }
}

const posted = (body) => ({
  method: "POST",
  body: JSON.stringify(body),
  headers: { "Content-Type": "application/json" },
});

/** Asks until the server has time and knows who asks. `options.signal` gives up, `options.waits` is told how
 * many seconds pass before the next try. */
async function ask(path, request, { signal, waits } = {}) {
  for (let tries = 1; ; tries += 1) {
    const response = await reach(path, request, signal);
    if (response.ok) return response;
    if (response.status === 401 && (await hasNewKey())) continue;
    if (response.status === 429 && tries < MOST_TRIES) {
      const seconds = Math.min(Math.max(Number(response.headers.get("Retry-After")) || 1, 1), 60);
      waits?.(seconds);
      await pause(seconds, signal);
      continue;
    }
    throw new ServerError(await messageOf(response));
  }
}

async function reach(path, request, signal) {
  const key = sessionStorage.getItem(KEY);
  const headers = { ...request.headers, ...(key ? { Authorization: `Bearer ${key}` } : {}) };
  try {
    return await fetch(path, { ...request, headers, signal });
  } catch (error) {
    if (isAborted(error)) throw error;
    throw new ServerError("The server does not answer; is it still running?");
  }
}

async function messageOf(response) {
  try {
    return (await response.json()).error.message;
  } catch {
    return `The server answered ${response.status} ${response.statusText}`.trim();
  }
}

function pause(seconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, seconds * 1000);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
}

let asking = null;

/** Whether the user gives a key; all requests that need one wait for the same answer. */
function hasNewKey() {
  asking ??= askForKey().finally(() => {
    asking = null;
  });
  return asking;
}

function askForKey() {
  const dialog = byId("key");
  byId("key-value").value = "";
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener(
      "close",
      () => {
        const key = byId("key-value").value.trim();
        const isGiven = dialog.returnValue === "use" && /^[\x21-\x7e]+$/.test(key);
        if (isGiven) sessionStorage.setItem(KEY, key);
        resolve(isGiven);
      },
      { once: true },
    );
  });
}

/** Server-sent events of a body. */
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  let isRead = false;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      isRead = done;
      if (done) return;
      const blocks = (text + value).replace(/\r\n/g, "\n").split("\n\n");
      text = blocks.pop();
      for (const block of blocks) yield eventOf(block);
    }
  } finally {
    if (!isRead) reader.cancel().catch(() => {}); // nobody waits for what has failed
  }
}

function eventOf(block) {
  const fields = { event: "message", data: [] };
  for (const line of block.split("\n")) {
    const [, name, value] = /^([^:]*):? ?(.*)$/.exec(line);
    if (name === "event") fields.event = value;
    if (name === "data") fields.data.push(value);
  }
  return { event: fields.event, data: fields.data.join("\n") };
}
