// Parts of pages: heads, empty states, problems, marks of a status.

import { h, svg } from "./dom.js";

export const pageHead = (title, ...tools) => h("header.page-head", h("h1", title), h("div.tools", tools));

/** Returns what a list without rows says: what is missing, and what to do next. */
export const emptyState = (title, ...text) => h("div.empty", h("h2", title), h("p", text));

/** Returns the notice of an error, with a button that tries again. @param {() => void} [retry] */
export const problemNotice = (error, retry) =>
  h("div.notice.error", { role: "alert" }, h("p", error?.message ?? error), retry && h("button", { onclick: retry }, "Try again"));

const picture = (size, kind, d) =>
  svg(`svg.${kind}`, { viewBox: `0 0 ${size} ${size}`, width: size, height: size, "aria-hidden": "true" }, svg("path", { d }));

/** The shape of each status, so that colour is not the only sign. */
const SHAPES = {
  ready: "M6 1.5a4.5 4.5 0 1 0 0 9a4.5 4.5 0 1 0 0-9",
  working: "M3.5 2.5l5.5 3.5l-5.5 3.5z",
  waiting: "M3 2v8M9 2v8",
  done: "M2 6.5l3 3l5-7",
  failed: "M2.5 2.5l7 7M9.5 2.5l-7 7",
  cancelled: "M2 6h8",
};

/** Returns the shape of a status, and its word. */
export const statusMark = (status, word = status) => h(`span.status.${status}`, picture(12, "shape", SHAPES[status] ?? SHAPES.ready), word);

const ICONS = {
  inbox: "M2 9l2-6h8l2 6v4H2zM2 9h4l1 2h2l1-2h4",
  tasks: "M6 4h8M6 8h8M6 12h8M2 4h.5M2 8h.5M2 12h.5",
  workers: "M4 4h8v8H4zM6 1v3M10 1v3M6 12v3M10 12v3M1 6h3M1 10h3M12 6h3M12 10h3",
  workbench: "M5 4L1 8l4 4M11 4l4 4l-4 4M9 2L7 14",
  theme: "M8 2a6 6 0 1 0 0 12zM8 2a6 6 0 0 1 0 12",
  help: "M6 6a2 2 0 1 1 2.7 1.9c-.5.2-.7.6-.7 1.1v.5M8 12h.01M8 1.5a6.5 6.5 0 1 0 0 13a6.5 6.5 0 1 0 0-13",
  person: "M8 8a3 3 0 1 0 0-6a3 3 0 0 0 0 6M2.5 14a5.5 5.5 0 0 1 11 0",
};

/** Returns a picture for a button or a link; the words beside it say the same. */
export const icon = (name) => picture(16, "icon", ICONS[name]);
