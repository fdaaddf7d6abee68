// The editor of a tool, a resource or a prompt: its arguments as a form or as JSON, and the last call with them.

import { post } from "../lib/api.js";
import { h, openExternal, replace } from "../lib/dom.js";
import { form } from "../lib/form.js";
import { markdownView } from "../lib/views.js";
import { callPanel } from "./call.js";
import { button, tabs } from "./parts.js";

const COMPLETION_DELAY_MS = 150;
const JSON_SCHEMA = { properties: { json: { title: "Arguments as JSON" } }, required: ["json"] };
let count = 0;

/** Returns the editor of an item, with the values that it begins with. */
export function editor(bench, item, values = {}) {
  const { kind, ref, title, asTask } = item;
  const isTool = kind === "tool";
  const results = h("div");
  const problem = h("p.error", { role: "alert", hidden: true });
  const inputs = inputsOf(bench, item, values);
  const task = h("input", { type: "checkbox", checked: asTask });
  const isRefused = isTool && !bench.app.session.mayWrite;
  /** @type {any} */
  let panel = null;

  const attempt = (work) => () => {
    problem.hidden = true;
    return work().catch((error) => (replace(problem, error.message).hidden = false));
  };
  const start = attempt(async () => {
    const given = inputs.values();
    if (given === null) return;
    const call = await post(bench.path(isTool ? "calls" : "reads"), { kind, name: ref, arguments: given, asTask: task.checked });
    panel?.close();
    panel = callPanel(bench, call, item);
    replace(results, panel.node);
  });
  const run = () => (bench.started = Promise.all([bench.started, start()]));
  const word = () => (bench.subscriptions.has(ref) ? "Unsubscribe" : "Subscribe");
  const subscribe = attempt(async () => {
    const { subscriptions } = await post(bench.path("subscriptions"), { uri: ref, on: !bench.subscriptions.has(ref) });
    bench.subscriptions = new Set(subscriptions);
    replace(subscribing, word());
  });
  const subscribing = button(word(), subscribe);
  const stop = bench.listen({ changed: ({ uri }) => uri === ref && run() });

  inputs.node.addEventListener("submit", run);
  inputs.node.addEventListener("keydown", (event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && run());
  const node = h(
    "article.bench-editor",
    h("header.bench-head", h("h2", title), title !== ref && h("code", ref), item.badges.map((text) => h("span.chip", text))),
    item.description && h("div.markdown", markdownView(item.description, openExternal)),
    inputs.node,
    problem,
    h(
      "div.actions",
      button(item.verb, run, { class: "primary", disabled: isRefused, title: isRefused && "This console is read-only." }),
      asTask !== null && h("label.check", task, "As a task"),
      item.canSubscribe && subscribing,
    ),
    results,
  );
  return { node, run, values: inputs.peek, close: () => (stop(), panel?.close()) };
}

/** Returns two tabs for the arguments. `values()` is `null` after showing what is wrong. */
function inputsOf(bench, item, values) {
  const { properties = {}, additionalProperties } = item.schema;
  const node = h("div.bench-inputs", { hidden: !Object.keys(properties).length && !additionalProperties });
  let tab = 0;
  /** @type {any} */
  let fields = null;
  function read() {
    const found = fields.values();
    const given = tab && found ? found.json : found;
    values = given ?? values;
    return given;
  }
  function show(chosen) {
    const wasShown = fields;
    if (fields && read() === null && tab) return;
    tab = chosen;
    fields = tab ? form(JSON_SCHEMA, { values: { json: values } }) : form(item.schema, { values });
    if (!tab && item.suggests) suggest(bench, item.ref, Object.keys(properties), fields.node);
    const bar = tabs("Arguments", ["Form", "JSON"], tab, show);
    replace(node, bar, fields.node);
    // A field that is missing in the form got the focus.
    if (wasShown) bar.children[tab].focus();
  }
  show(0);
  return { node, values: read, peek: () => read() ?? values };
}

/** Lets the server suggest values for the fields of a prompt or a template. */
function suggest(bench, ref, names, node) {
  const inputs = [...node.querySelectorAll("input")];
  inputs.forEach((input, at) => {
    const options = h("datalist", { id: `suggestions-${++count}` });
    let timer = 0;
    const ask = async () => {
      const context = Object.fromEntries(names.map((name, place) => [name, inputs[place].value]));
      const found = await post(bench.path("completions"), { ref, argument: names[at], value: input.value, context }).catch(() => ({ values: [] }));
      replace(options, found.values.map((value) => h("option", { value })));
    };
    input.setAttribute("list", options.id);
    input.autocomplete = "off";
    input.after(options);
    for (const event of ["input", "focus"]) input.addEventListener(event, () => (clearTimeout(timer), (timer = setTimeout(ask, COMPLETION_DELAY_MS))));
  });
}
