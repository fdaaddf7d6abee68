// All tasks of a store: filters in the address, counts, live changes, and the cancellation of many tasks.

import { get } from "../lib/api.js";
import { cancelTasks } from "../lib/cancel.js";
import { cell, choice, noStore, repeated, storeQuery, table, taskStatus } from "../lib/cells.js";
import { h, redraw, replace } from "../lib/dom.js";
import { addShortcuts, listShortcuts } from "../lib/keys.js";
import { emptyState, pageHead, problemNotice } from "../lib/view.js";

export const title = "Tasks";

const STATUSES = ["", "failed", "waiting", "working", "done", "cancelled"];
const NO_FILTER = { status: "", tool: "", principal: "", age: "", order: "", cursor: "" };

export async function open(app) {
  const place = storeQuery(app, Object.keys(NO_FILTER), () => refresh.now());
  if (!place) return noStore("Tasks");
  const { query } = place;
  const { mayWrite, mayOperate } = app.session;
  const selected = new Set();
  let shown = /** @type {any} */ (null);
  const change = (changes) => (selected.clear(), place.change({ cursor: "", ...changes }));
  const button = (label, onclick, props = {}) => h("button", { onclick, ...props }, label);

  const tabs = h("div.tabs.statuses", { role: "group", "aria-label": "Status" });
  const list = h("div");
  const tools = h("div.actions");
  const toolChoice = choice("Tool", (tool) => change({ tool }));
  const ageChoice = choice("Age", (age) => change({ age }));
  const orderChoice = choice("Order", (order) => change({ order }));
  const principal = h("input", { type: "search", placeholder: "Principal", "aria-label": "Principal", onchange: () => change({ principal: principal.value.trim() }) });
  const clear = button("Clear filters", () => change(NO_FILTER), { class: "quiet" });

  const refresh = repeated(async () => {
    try {
      shown = await get(`${place.path()}/tasks`, query);
      draw();
    } catch (error) {
      replace(list, problemNotice(error, () => change(error.status === 400 ? NO_FILTER : {})));
    }
  });

  function draw() {
    const { tasks, cursor } = shown;
    redraw(tabs, STATUSES.map(tab));
    toolChoice.fill([["", "All tools"], ...shown.tools], query.tool);
    ageChoice.fill(shown.ages, query.age);
    orderChoice.fill([["", "Newest first"], ["oldest", "Oldest first"]], query.order);
    principal.value = query.principal;
    clear.hidden = !Object.values(query).some(Boolean);
    for (const id of selected) if (!tasks.some((task) => task.id === id)) selected.delete(id);
    drawTools();
    const focused = /** @type {any} */ (document.activeElement).dataset.id;
    const pages = [query.cursor && button("First page", () => change({})), cursor && button("Next page", () => change({ cursor }).then(() => scrollTo(0, 0)))];
    const columns = [mayWrite && h("span.visually-hidden", "Selected"), ...shown.columns];
    replace(list, tasks.length ? table("tasks", "Tasks", columns, tasks.map(row)) : emptyState(...shown.empty), h("div.actions.pager", pages));
    if (focused) list.querySelector(`[data-id="${CSS.escape(focused)}"]`)?.focus();
  }

  function tab(status) {
    const count = shown.counts[status || "all"];
    const label = status ? taskStatus(status, status[0].toUpperCase() + status.slice(1)) : "All";
    return button([label, h("span.count", count)], () => change({ status }), { class: status === "failed" && count !== "0" && "attention", "aria-pressed": String(status === query.status) });
  }

  function drawTools() {
    const [label, ids, kind] = selected.size ? [`Cancel ${selected.size} selected…`, [...selected], "danger"] : ["Cancel all of these…", null, "quiet"];
    replace(tools, mayWrite && (ids || shown.mayCancel) && button(label, () => cancel(ids), { class: kind }));
  }

  async function cancel(ids) {
    const { order, cursor, ...filter } = query;
    try {
      await cancelTasks(app, place.path(), ids, filter);
      selected.clear();
    } catch (error) {
      app.toast(error.message, { kind: "error" });
    }
    refresh.now();
  }

  function row({ id, tool, status, mayCancel, cells }) {
    const select = h("input", { type: "checkbox", checked: selected.has(id), "aria-label": `Select ${tool}`, onchange: () => (selected[select.checked ? "add" : "delete"](id), drawTools()) });
    return h("tr", { class: status }, mayWrite && h("td.select", mayCancel && select), cells.map(([kind, value]) => h("td", { class: kind }, cell(value))));
  }

  const removeShortcuts = addShortcuts([
    ...listShortcuts(() => list, "a.row-link"),
    { key: "x", label: "Select the task", run: () => document.activeElement?.closest("tr")?.querySelector("input")?.click() },
    { key: "c", label: "Cancel the selected tasks", run: () => tools.querySelector("button")?.click() },
    { key: "/", label: "Filter", run: () => toolChoice.focus() },
    { key: "f", label: "Failed tasks", run: () => change({ status: query.status === "failed" ? "" : "failed" }) },
  ]);
  await refresh.now();
  const stopLive = app.live("tasks", refresh.soon);
  return {
    node: h("div.page", pageHead("Tasks", place.select, tools), tabs, h("search.toolbar.filters", toolChoice, mayOperate && principal, ageChoice, orderChoice, clear), list),
    close: () => (stopLive(), refresh.stop(), removeShortcuts()),
  };
}
