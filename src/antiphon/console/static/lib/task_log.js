// The timeline of a task, and its log: a window of 200 entries, from either end.

import { get } from "./api.js";
import { h, replace } from "./dom.js";
import { exactly } from "./time.js";
import { dataView } from "./views.js";
import { problemNotice } from "./view.js";

const placed = (node, left, width) => {
  node.style.left = `${left}%`;
  if (width) node.style.width = `${width}%`;
  return node;
};

/** Returns the timeline as the server has laid it out. A row that is chosen opens its entry. */
export function timelineView({ axis, rows, note }, openEntry) {
  const row = ({ kind, state = "", words, label, detail = "", start, length, bars, entry }) =>
    h(
      "li",
      { dataset: { kind }, title: `${words}. ${exactly(start)}. ${detail}` },
      h(entry ? "button.label.cut" : "span.label.cut", { onclick: () => entry && openEntry(entry) }, h("span.visually-hidden", `${words}: `), label),
      h("span.length", length),
      h("span.track", { "aria-hidden": "true" }, bars.map(([left, width]) => placed(h("span", { class: `bar ${state}` }), left, width))),
    );
  const ticks = axis.map(([at, text]) => placed(h("span", text), at));
  return h("div.waterfall", h("div.axis", { "aria-hidden": "true" }, h("div.track", ticks)), h("ol", rows.map(row)), note && h("p.muted.small", note));
}

/** Returns the log; `refresh` takes the number of its entries, and `show` opens one of them. */
export function logView(path) {
  let shown = [];
  let total = -1;
  const list = h("ol.log");
  const range = h("span.muted.small");
  const last = () => shown.at(-1)?.number ?? 0;
  const button = (label, query) => h("button", { onclick: () => load(query()) }, label);
  const [first, earlier, later, end] = [button("First", () => ({ after: 0 })), button("Earlier", () => ({ before: shown[0].number })), button("Later", () => ({ after: last() })), button("Last", () => ({}))];

  async function load(query) {
    ({ entries: shown, total } = await get(`${path}/log`, query));
    const from = shown[0]?.number ?? 0;
    first.disabled = earlier.disabled = from <= 1;
    later.disabled = end.disabled = last() >= total;
    replace(range, `Entries ${from.toLocaleString()} to ${last().toLocaleString()} of ${total.toLocaleString()}`);
    const open = new Set([...list.querySelectorAll("details[open]")].map((each) => each.dataset.number));
    replace(list, shown.map((entry) => h("li", entryView(path, entry, open.has(String(entry.number))))));
  }

  return {
    node: h("section", h("h2", "Log"), h("div.toolbar", first, earlier, later, end, range), list),
    // A person who reads earlier entries stays there.
    refresh: (count) => count !== total && last() >= total && load({}),
    async show(number) {
      if (!shown.some((entry) => entry.number === number)) await load({ after: Math.max(0, number - 100) });
      const found = list.querySelector(`details[data-number="${number}"]`);
      found.open = true;
      found.firstElementChild.focus();
      found.scrollIntoView({ block: "center" });
    },
  };
}

function entryView(path, { number, at, kind, text, size }, isOpen) {
  const body = h("div");
  const fill = async () => {
    if (!details.open || body.childElementCount) return;
    const node = await get(`${path}/log/${number}`).then(({ data }) => dataView(data), problemNotice);
    replace(body, node);
  };
  const summary = h("summary", h("span.entry-number", number), h("time", { title: exactly(at) }, new Date(at).toLocaleTimeString()), h("span.kind", kind), h("code.cut.grow", text), size);
  const details = h("details", { dataset: { number }, open: isOpen, ontoggle: fill }, summary, body);
  return details;
}
