// Short messages at the edge of the page, which go away by themselves.

import { h } from "./dom.js";

const area = h("div.toasts", { role: "status" });

export function toast(text, { kind = "info" } = {}) {
  if (!area.isConnected) document.body.append(area);
  const node = h("div.toast", { class: kind }, h("p", text), h("button.quiet.icon", { "aria-label": "Close", onclick: () => node.remove() }, "×"));
  area.append(node);
  if (area.childElementCount > 4) area.firstElementChild.remove();
  setTimeout(() => node.remove(), kind === "error" ? 12_000 : 6000);
}
