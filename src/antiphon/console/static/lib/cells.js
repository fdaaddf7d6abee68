// Tables and facts that the server describes as cells: text, numbers, and objects such as `{ago: time}`.

import { h, replace } from "./dom.js";
import { age, ago, exactly, left } from "./time.js";
import { emptyState, pageHead, statusMark } from "./view.js";

const MARKS = { parked: "waiting", stopping: "cancelled", unreadable: "failed" };
const CELLS = {
  ago,
  age,
  at: exactly,
  left,
  code: (text) => h("code", text),
  link: ([href, text]) => h("a", { href }, text),
  note: (text) => h("p.small.muted", text),
  progress: ([value, max]) => h("progress", { value, max, "aria-label": "Progress" }),
  status: ([status, word]) => taskStatus(status, word),
  task: ({ id, href, tool, summary, message, progress }) => [
    h("a.row-link", { href, dataset: { id } }, h("strong", tool), summary && h("code.muted.cut", summary)),
    message && h("p.small.cut", message),
    progress && CELLS.progress(progress),
  ],
};

export const cell = (value) => {
  if (Array.isArray(value)) return value.map(cell);
  if (typeof value === "number") return value.toLocaleString();
  return value?.constructor === Object ? Object.entries(value).map(([kind, each]) => CELLS[kind](each)) : value;
};

export const taskStatus = (status, word = status === "parked" ? "waiting" : status) => statusMark(MARKS[status] ?? status, word);

export function table(kind, caption, headings, rows) {
  const head = headings.filter(Boolean).map((each) => h("th", { scope: "col" }, each));
  return h("table", { class: kind }, h("caption.visually-hidden", caption), h("thead", h("tr", head)), h("tbody", rows));
}

/** A select; `fill` replaces its options, each a value, or a value and its words. */
export function choice(label, onchange) {
  const node = h("select", { "aria-label": label, onchange: () => onchange(node.value) });
  node.fill = (options, value) => {
    replace(node, options.map((each) => h("option", { value: [each].flat()[0] }, [each].flat().at(-1))));
    node.value = value;
  };
  return node;
}

/** The store and the fields that the address of a page names; `null` without a store. @returns {any} */
export function storeQuery(app, names, changed) {
  const { stores } = app.session;
  if (!stores.length) return null;
  const given = new URLSearchParams(location.search);
  const query = Object.fromEntries(names.map((name) => [name, given.get(name) ?? ""]));
  let store = (stores.find(({ id }) => id === given.get("store")) ?? stores[0]).id;
  const change = (changes) => {
    Object.assign(query, changes);
    const params = new URLSearchParams(Object.entries({ ...query, store: select && store }).filter(([, value]) => value));
    history.pushState(null, "", `${location.pathname}?${params}`);
    return changed();
  };
  const select = stores.length > 1 ? choice("Store", (id) => ((store = id), change({}))) : null;
  select?.fill(stores.map(({ id, name }) => [id, name]), store);
  return { query, change, select, path: () => `/api/stores/${encodeURIComponent(store)}` };
}

export function noStore(title) {
  return { node: h("div.page", pageHead(title), emptyState("This console has no store", "Start it with --store and the address of a store, such as sqlite:///tasks.db.")) };
}

/** Functions that do work again, never twice at the same time: `now`, or `soon`, at most once a second. */
export function repeated(work) {
  let [running, isWanted, timer] = [null, false, 0];
  const now = async () => {
    isWanted = true;
    while (running) await running;
    if (isWanted) await (running = work().finally(() => (running = null)), (isWanted = false), running);
  };
  const soon = () => (timer ||= setTimeout(() => ((timer = 0), now()), 1000));
  return { now, soon, stop: () => clearTimeout(timer) };
}
