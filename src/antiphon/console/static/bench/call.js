// What comes of one call: its state, its questions in place, the stream as it comes, and the answer.

import { get, post } from "../lib/api.js";
import { cell } from "../lib/cells.js";
import { h, redraw, replace } from "../lib/dom.js";
import { answerForm } from "../lib/question.js";
import { age, duration } from "../lib/time.js";
import { statusMark } from "../lib/view.js";
import { dataView } from "../lib/views.js";
import { answerView, blockView, messagesView } from "./answer.js";
import { button } from "./parts.js";

const MAX_SHOWN = 500;

/** Returns the panel of a call, which follows the call until it ends. */
export function callPanel(bench, call, item) {
  const { id } = call;
  const state = h("div.bench-state", { role: "status" });
  const questions = h("div");
  const output = h("div.bench-output");
  const logs = h("ol.bench-logs");
  const logBox = h("details", { hidden: true }, h("summary", "Log"), logs);
  const node = h("section.bench-call", { "aria-label": "Answer" }, state, questions, output, logBox);
  const asked = new Map();
  /** @type {any} */
  let app = null;
  let isDone = false;
  let last = call.droppedSegments + call.segments.length;

  function showState() {
    const isRunning = call.status === "running";
    const cancel = () => post(bench.path(`calls/${id}/cancel`)).catch((error) => bench.app.toast(error.message));
    redraw(
      state,
      asked.size ? statusMark("waiting", "Asks you") : statusMark(...call.mark),
      h("span.muted", isRunning ? age(call.startedAt) : duration(call.ms)),
      call.facts.map((each) => h("span.muted", cell(each))),
      isRunning && button("Cancel", cancel),
    );
    if (!isRunning && !isDone) finish();
  }

  async function finish() {
    isDone = true;
    const { outcome, shown, error } = await get(bench.path(`calls/${id}`)).catch((problem) => ({ error: problem }));
    if (error) {
      const { message, code, data = null } = error;
      replace(output, h("div.notice.error", h("p.pre", message), code && h("p.muted", `Error ${code}`), data !== null && dataView(data)));
    } else if (outcome) {
      replace(output, answerView(bench, outcome, shown));
      if (!item.ui || outcome.isError) return;
      app = await bench.renderApp({ uri: item.ui, tool: item.definition, input: call.arguments, result: outcome });
      output.prepend(app.node);
    }
  }

  function showQuestions() {
    for (const [key, made] of asked) {
      if (bench.questions.has(key)) continue;
      made.remove();
      asked.delete(key);
    }
    for (const [key, question] of bench.questions) {
      // Over stdio, a question does not say which call it belongs to.
      if (!asked.has(key) && (question.call ?? id) === id && (!isDone || app)) asked.set(key, askQuestion(bench, question, questions));
    }
    showState();
  }

  function change(news) {
    if (news?.id === id) Object.assign(call, news);
    showState();
  }

  const stop = bench.listen({
    snapshot: ({ calls }) => (change(calls.find((each) => each.id === id)), showQuestions()),
    question: showQuestions,
    questionClosed: showQuestions,
    call: change,
    segment(data) {
      // The first segments came with the call.
      if (data.call !== id || isDone || data.number <= last) return;
      last = data.number;
      add(output, blockView(bench, data.block));
    },
    log(data) {
      if ((data.call ?? id) !== id) return;
      logBox.hidden = false;
      add(logs, h("li", h("span.chip", data.level), data.text));
    },
  });
  for (const block of call.segments) add(output, blockView(bench, block));
  showQuestions();

  return { node, close: () => (stop(), app?.close()) };
}

/** Appends a node, and removes the first one if there are too many. */
function add(parent, node) {
  parent.append(node);
  if (parent.childElementCount > MAX_SHOWN) parent.firstElementChild.remove();
}

/** Asks a question: by its App, if there is one that can, until the person wants the form. Returns the node. */
function askQuestion(bench, question, parent) {
  const { id, app, message, said } = question;
  const node = h("section.bench-question", { "aria-label": "Question" });
  const send = (action, content) => post(bench.path(`questions/${id}`), { action, content });
  const useForm = (problem) => {
    const reply = (...answer) => send(...answer).catch((error) => form.showErrors(error.fields, error.message));
    const form = answerForm(question, { answer: (content) => reply("accept", content), decline: () => reply("decline") });
    replace(
      node,
      problem && h("p.muted", problem.message),
      h("p.pre", message),
      said && messagesView(bench, said),
      form.node,
    );
    form.focus();
  };
  const useApp = async () => {
    const shown = await bench.renderApp(app);
    replace(node, shown.node, button("Use the form", () => (useForm(), shown.close())));
    const answered = shown.answer.then(({ action, content }) => send(action, content));
    await answered.catch((error) => node.contains(shown.node) && useForm(error));
    shown.close();
  };
  parent.append(node);
  if (app) useApp();
  else useForm();
  return node;
}
