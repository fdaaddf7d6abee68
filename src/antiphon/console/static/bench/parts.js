// Small parts of the workbench.

import { h } from "../lib/dom.js";

/** Returns a button. */
export const button = (label, onclick, props = {}) => h("button", { onclick, ...props }, label);

/** Returns a row of buttons, of which one is on. `show` takes the number of the one that was chosen. */
export const tabs = (label, names, chosen, show) =>
  h("div.tabs", { role: "group", "aria-label": label }, names.map((name, at) => button(name, () => show(at), { "aria-pressed": String(at === chosen) })));
