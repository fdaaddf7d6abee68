// Every message between the client and the server: with time and size, filtered, and exported for a test.

import { address, get, post } from "../lib/api.js";
import { choice, table } from "../lib/cells.js";
import { h, replace } from "../lib/dom.js";
import { button } from "./parts.js";

const MAX_ROWS = 200;
const MAX_KEPT = 2000;
const COLUMNS = ["Way", "Time", "Method", "Id", "Bytes", "Took"];
const METHOD = 2;

/** Returns the panel of messages of a connection. */
export function messagePanel(bench) {
  let messages = [];
  let dropped = 0;
  let selected = 0;
  const detail = h("div.bench-detail", { hidden: true });
  const note = h("span.muted.small", { role: "status" });
  const count = h("span.count", "0");
  const filter = h("input", { type: "search", placeholder: "Method or id", "aria-label": "Filter messages", oninput: draw });
  const way = choice("Direction", draw);
  way.fill([["", "Both ways"], ["client", "Sent"], ["server", "Received"]], "");
  const failed = h("input", { type: "checkbox", onchange: draw });
  const save = h("a.button", { download: "messages.jsonl" }, "Export");
  const list = h("div.scroll", { tabindex: "0", role: "region", "aria-label": "Messages" });
  const toolbar = h("div.toolbar", filter, way, h("label.check", failed, "Errors only"), save, button("Clear", () => post(bench.path("messages/clear"))), note);
  const node = h("details.bench-log", { ontoggle: draw }, h("summary", "Messages", count), toolbar, h("div.bench-log-columns", list, detail));

  const fits = ({ from, isBad, label, id }) =>
    (!way.value || from === way.value) && (!failed.checked || isBad) && `${label} ${id ?? ""}`.toLowerCase().includes(filter.value.trim().toLowerCase());

  /** Draws the newest rows. The server collects messages that come together, so this is not done for each. */
  function draw() {
    replace(count, messages.length + dropped);
    save.href = address(bench.path("messages.jsonl"));
    if (!node.open) return;
    const found = messages.filter(fits);
    replace(list, table("", "Messages", COLUMNS, found.slice(-MAX_ROWS).reverse().map(row)));
    replace(note, found.length > MAX_ROWS && `The last ${MAX_ROWS} of ${found.length}. `, dropped > 0 && `${dropped} older ones are not listed.`);
  }

  function row({ number, isBad, cells }) {
    const shown = cells.map((each, at) => h("td", at === METHOD ? button(each, () => show(number)) : each));
    return h("tr", { class: isBad && "failed", "aria-current": number === selected && "true" }, shown);
  }

  function select(number) {
    selected = number;
    detail.hidden = !number;
    draw();
  }

  async function show(number) {
    select(number);
    const { message, failure } = await get(bench.path(`messages/${number}`)).catch((error) => ({ failure: error.message }));
    const text = failure ?? JSON.stringify(message, null, 2);
    const copy = () => navigator.clipboard.writeText(text).then(() => bench.app.toast("The message is copied."));
    replace(detail, h("div.actions", button("Copy", copy), button("Close", () => select(0))), h("pre", { tabindex: "0" }, text));
  }

  bench.listen({
    snapshot(data) {
      ({ messages, dropped } = data);
      draw();
    },
    messages(list) {
      messages.push(...list);
      dropped += messages.splice(0, messages.length - MAX_KEPT).length;
      draw();
    },
  });
  return node;
}
