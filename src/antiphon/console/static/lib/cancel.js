// Cancels many tasks: the person confirms their number, and then sees how far it is and what was not cancelled.

import { get, post, stream } from "./api.js";
import { showDialog } from "./dialog.js";
import { h, replace } from "./dom.js";

/** Cancels the tasks with these ids, or all that match a filter. */
export async function cancelTasks(app, path, ids, filter) {
  const { action, text, isTyped, ...wanted } = await get(`${path}/cancellable`, ids ? { selected: ids.length } : filter);
  if (!wanted.count) return app.toast("All of these tasks have ended.");
  const status = h("p", { role: "status" });
  const bar = h("progress", { "aria-label": "Cancelled", hidden: true });
  const input = h("input", { inputmode: "numeric", autocomplete: "off", oninput: () => (go.disabled = input.value.trim() !== String(wanted.count)) });
  const go = h("button.danger", { disabled: isTyped, onclick: begin }, action);
  const back = h("button", { onclick: () => dialog.close() }, "Back");
  const question = h("div.field", h("p", text), isTyped && h("label.field", `Type ${wanted.count} to confirm`, input));
  const dialog = showDialog(`${action}?`, [question, bar, status], [back, go]);
  let stop = () => {};

  async function begin() {
    go.disabled = true;
    try {
      const { job } = await post(`${path}/cancellations`, { ...wanted, ids, filter });
      question.hidden = go.hidden = true;
      bar.hidden = false;
      stop = stream(`${path}/cancellations/${job}`, { progress: show, problem: ({ message }) => replace(status, message) });
    } catch (error) {
      replace(status, error.message);
    }
  }

  function show({ total, finished, words, isDone }) {
    bar.max = total || 1;
    bar.value = finished;
    replace(status, words);
    if (!isDone) return;
    stop();
    replace(back, "Close");
  }

  await new Promise((resolve) => dialog.addEventListener("close", resolve));
  stop();
}
