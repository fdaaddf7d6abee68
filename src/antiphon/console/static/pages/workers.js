// The workers of a store, its queue, and how many tasks ended in each hour.

import { get } from "../lib/api.js";
import { cell, choice, noStore, repeated, storeQuery, table } from "../lib/cells.js";
import { h, replace } from "../lib/dom.js";
import { exactly } from "../lib/time.js";
import { emptyState, pageHead, problemNotice } from "../lib/view.js";

export const title = "Workers";

const ASK_MS = 5000;

export async function open(app) {
  const place = storeQuery(app, ["hours", "tool"], () => (refresh.now(), refreshPlots.now()));
  if (!place) return noStore("Workers");
  const { query, change } = place;
  const [queue, workers, plots] = [h("div.figures"), h("div"), h("div.plots")];
  const spanChoice = choice("Time", (hours) => change({ hours }));
  const toolChoice = choice("Tool", (tool) => change({ tool }));
  const guarded = (node, work) => repeated(() => work().catch((error) => replace(node, problemNotice(error, () => location.reload()))));
  const rowsOf = (rows) => rows.map(([first, ...rest]) => h("tr", h("th", { scope: "row" }, cell(first)), rest.map((each) => h("td", cell(each)))));

  const refresh = guarded(workers, async () => {
    const { figures, workers: rows, columns, empty, isRefreshing } = await get(`${place.path()}/workers`);
    replace(queue, figures.map(([value, label]) => h("div", h("strong", cell(value)), h("span.muted.small", label))));
    replace(workers, rows.length ? table("workers", "Workers", columns, rowsOf(rows)) : emptyState(...empty));
    if (isRefreshing) refresh.soon();
  });
  const refreshPlots = guarded(plots, async () => {
    const { plots: found, tools, columns, names, spans } = await get(`${place.path()}/hours`, query);
    spanChoice.fill(spans, query.hours);
    toolChoice.fill([["", "All tools"], ...names], query.tool);
    replace(plots, found.map((plot) => plotView(plot, rowsOf)), table("numbers", "By tool", columns, rowsOf(tools)));
  });

  await Promise.all([refresh.now(), refreshPlots.now()]);
  const stopLive = app.live("tasks", () => (refresh.soon(), refreshPlots.soon()));
  const timer = setInterval(() => document.hidden || refresh.soon(), ASK_MS);
  return {
    node: h("div.page", pageHead("Workers", place.select), queue, workers, h("div.toolbar.filters", spanChoice, toolChoice), plots),
    close: () => (stopLive(), clearInterval(timer), refresh.stop(), refreshPlots.stop()),
  };
}

/** Stacked bars by hour, with a table of the same numbers for people who read rather than look. */
function plotView({ name, series, most, hours, columns, rows }, rowsOf) {
  const bar = ([kind, percent]) => {
    const node = h("span", { class: kind });
    node.style.height = `${percent}%`;
    return node;
  };
  return h(
    "figure.plot",
    h("figcaption", h("h2", name), series.map(([kind, words]) => h("span", { class: `legend ${kind}` }, words)), h("span.most", most)),
    h("div.bars", { role: "img", "aria-label": `${name}. The table below has the numbers.` }, hours.map(({ at, words, bars }) => h("div", { title: `${exactly(at)}: ${words}` }, bars.map(bar)))),
    h("div.ends", h("span", exactly(hours[0].at)), h("span", "now")),
    h("details", h("summary", "Numbers"), h("div.scroll", { tabindex: 0, role: "region", "aria-label": `${name}: numbers` }, table("numbers", name, columns, rowsOf(rows)))),
  );
}
