// Dialogs: the browser's own, which keeps the focus inside and closes with Escape.

import { h } from "./dom.js";

let count = 0;

/** Shows a dialog, and returns it. It is removed when it closes. @param {import("./dom.js").Child} [actions] @returns {HTMLDialogElement} */
export function showDialog(title, body, actions) {
  const id = `dialog-${++count}`;
  const dialog = h("dialog", { "aria-labelledby": id }, h("h2", { id }, title), h("div.dialog-body", body), actions && h("div.actions", actions));
  dialog.addEventListener("close", () => dialog.remove());
  // A click on the backdrop.
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/** Asks the person whether to do something. @returns {Promise<boolean>} */
export function confirm({ title, text = /** @type {any} */ (null), action, cancel = "Back", danger = false }) {
  return new Promise((resolve) => {
    const button = (label, value, kind) => h("button", { class: kind, onclick: () => dialog.close(value) }, label);
    const body = typeof text === "string" ? h("p", text) : text;
    const dialog = showDialog(title, body, [button(cancel, "", ""), button(action, "yes", danger ? "danger" : "primary")]);
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"));
  });
}
