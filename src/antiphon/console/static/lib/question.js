// The form of one question, for the inbox and for other pages that show a question in place.

import { externalLink, h, replace } from "./dom.js";
import { form } from "./form.js";

/**
 * Returns the form of a question: `{kind: "form", schema, decision}`, or `{kind: "url", url, shownUrl, help}`.
 * @param {any} question
 * @param {{answer: (content?: any) => void, decline: () => void, leave?: () => void}} options
 */
export function answerForm(question, { answer, decline, leave }) {
  const actions = [h("button", { onclick: decline }, "Decline"), leave && h("button.quiet", { onclick: leave }, "Leave open")];
  const made = (question.kind === "url" ? addressForm : schemaForm)(question, answer, actions);
  const { node } = made;
  node.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) node.querySelector("button.primary")?.click();
  });
  /** Stops input. What was typed can still be read and copied. @param {boolean} value */
  const setDisabled = (value) => {
    for (const each of node.querySelectorAll("button, input, select, textarea")) {
      each[each.matches("textarea, input:not([type=checkbox])") ? "readOnly" : "disabled"] = value;
    }
  };
  return { ...made, setDisabled };
}

/** Returns whether the person confirms to decline a question. */
export const confirmDecline = (app, { declining }) => app.confirm({ title: "Decline this question?", text: declining, action: "Decline", danger: true });

function schemaForm({ schema, decision }, answer, actions) {
  if (!decision) return form(schema, { submitLabel: "Answer", onsubmit: answer, actions });
  const { name, title, help } = decision;
  const choice = (tag, value, label) => h(tag, { onclick: () => answer({ [name]: value }) }, label);
  const yes = choice("button.primary", true, "Yes");
  return withProblem(yes, [title && h("p.label", title), help && h("p.help", help)], [yes, choice("button", false, "No"), actions]);
}

function addressForm({ url, shownUrl, help }, answer, actions) {
  const link = url && externalLink(url, "Open the page");
  link?.classList.add("button");
  const done = h("button.primary", { onclick: () => answer() }, "I have finished there");
  return withProblem(link ?? done, [h("p.help", help), h("p.address.mono", shownUrl), link && h("div.actions", link)], [done, actions]);
}

/** Returns a form with a place for what is wrong. `first` gets the focus. */
function withProblem(first, body, actions) {
  const problem = h("p.error", { role: "alert", hidden: true });
  return {
    node: h("div.form", body, problem, h("div.actions", actions)),
    focus: () => first.focus(),
    showErrors: (fields, message) => {
      replace(problem, Object.values(fields).join(" ") || message).hidden = false;
    },
  };
}
