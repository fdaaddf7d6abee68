// One task: what went wrong first, then its questions, output, result, timeline and log.

import { get, post, stream } from "../lib/api.js";
import { cell, repeated, taskStatus } from "../lib/cells.js";
import { boundedView, contentView, sourceView, textView } from "../lib/content.js";
import { h, replace } from "../lib/dom.js";
import { addShortcuts } from "../lib/keys.js";
import { answerForm, confirmDecline } from "../lib/question.js";
import { logView, timelineView } from "../lib/task_log.js";
import { problemNotice } from "../lib/view.js";

export const title = "Task";

/** How many of the last segments of the output the page shows. */
const SEGMENTS = 2000;

export async function open(app, [store, id]) {
  const path = `/api/stores/${encodeURIComponent(store)}/tasks/${encodeURIComponent(id)}`;
  const [head, facts, notices] = [h("header.page-head.task-head"), h("dl.facts"), h("div")];
  const [questions, result, timeline, argumentsBox] = ["Questions", "Result", "Timeline", "Arguments"].map((name) => h("section", { hidden: true, "aria-label": name }));
  const fill = (node, ...children) => (replace(node, h("h2", node.getAttribute("aria-label")), children).hidden = false);
  const output = outputView();
  const log = app.session.mayOperate ? logView(path) : null;
  const asked = new Map();
  let view = await get(path);
  /** What is drawn, by part: a part that has not changed keeps its focus and what is open in it. */
  const drawn = {};
  const isNew = (name, value) => drawn[name] !== (drawn[name] = JSON.stringify(value));
  let stop = () => {};

  const refresh = repeated(async () => {
    try {
      view = await get(path);
      await draw();
    } catch (error) {
      replace(notices, problemNotice(error, refresh.now));
    }
  });

  async function draw() {
    const { task, problem, failure } = view;
    if (isNew("head", [task.status, view.actions])) replace(head, h("a.back", { href: "tasks" }, "Tasks"), h("h1", task.tool), taskStatus(task.status), h("div.tools", h("button", { onclick: copy }, "Copy as JSON"), view.actions.map(button)));
    if (isNew("facts", view.facts)) replace(facts, view.facts.map(([name, value]) => h("div", h("dt", name), h("dd", cell(value)))));
    replace(notices, failure && h("div.notice.error.failure", h("h2", failure.title), textView(failure.text, false), failure.data && boundedView(failure.data)), problem && problemNotice(problem));
    if (isNew("arguments", view.arguments)) fill(argumentsBox, boundedView(view.arguments));
    if (isNew("result", view.result) && view.result) drawResult(view.result);
    await Promise.all([isNew("questions", view.questions) && drawQuestions(), log && drawTimeline(), log?.refresh(view.entries)]);
  }

  function drawResult({ content, rest, artifact, data }) {
    output.end(rest);
    const shown = artifact && artifactView(`${path}/artifact`);
    const isOpen = !content.length && !artifact;
    if (content.length || artifact || data) fill(result, contentView(content), shown, data && h("details", { open: isOpen }, h("summary", "Structured content"), boundedView(data)));
  }

  async function drawTimeline() {
    fill(timeline, timelineView(await get(`${path}/timeline`), (number) => log?.show(number)));
  }

  async function drawQuestions() {
    for (const key of view.questions) if (!asked.has(key)) asked.set(key, await questionPart(app, store, id, key, refresh.now).catch(() => null));
    const parts = view.questions.map((key) => asked.get(key)).filter(Boolean);
    fill(questions, parts);
    questions.hidden = !parts.length;
  }

  function button({ name, done, ...words }) {
    const onclick = async () => {
      if (!(await app.confirm(words))) return;
      try {
        const created = (await post(`${path}/${name}`)).id;
        app.toast(done);
        if (created) return app.navigate(`tasks/${encodeURIComponent(store)}/${encodeURIComponent(created)}`);
        follow();
      } catch (error) {
        app.toast(error.message, { kind: "error" });
      }
      refresh.now();
    };
    return h("button", { class: words.danger && "danger", onclick, dataset: { action: name } }, `${words.action}…`);
  }

  async function copy() {
    try {
      await navigator.clipboard.writeText(JSON.stringify(await get(`${path}/json`), null, 2));
      app.toast("The task is copied as JSON.");
    } catch (error) {
      app.toast(`Cannot copy the task: ${error.message}`, { kind: "error" });
    }
  }

  /** Shows the output as it comes, and the task after every change. */
  function follow() {
    stop();
    const task = ({ hasEnded }) => (refresh.soon(), hasEnded && stop());
    stop = stream(`${path}/stream`, { segments: output.add, task, problem: ({ message }) => replace(notices, problemNotice(message, refresh.now)) }, () => ({ after: output.last() }));
  }

  output.start(view.segments ?? 0);
  await draw();
  if (!view.problem) follow();
  const press = (name) => () => head.querySelector(`[data-action=${name}]`)?.click();
  const removeShortcuts = addShortcuts([
    { key: "c", label: "Cancel the task", run: press("cancel") },
    { key: "r", label: "Retry the task", run: press("retry") },
    { key: "Escape", label: "Back", run: () => history.back() },
  ]);
  return {
    node: h("div.page.task", head, notices, facts, questions, output.node, result, timeline, argumentsBox, log?.node),
    close: () => (stop(), refresh.stop(), removeShortcuts()),
  };
}

/** Returns the form of a question; `null` if the person may not answer it. */
async function questionPart(app, store, task, key, changed) {
  const path = `/api/inbox/stores/${encodeURIComponent(store)}`;
  const { question } = await get(`${path}/question`, { task, key });
  if (!question || !app.session.mayWrite) return null;
  const send = async (action, content) => {
    try {
      await post(`${path}/answer`, { task, key, action, content });
      changed();
    } catch (error) {
      part.showErrors(error.fields, error.message);
    }
  };
  const part = answerForm(question, { answer: (content) => send("accept", content), decline: async () => (await confirmDecline(app, question)) && send("decline") });
  return h("div.in-place", textView(question.message, false), part.node);
}

function artifactView(address) {
  const box = h("div.artifact");
  const show = (found) => replace(box, h("h3", found.title || found.type), sourceView(found));
  get(address).then(show, (error) => replace(box, error.message));
  return box;
}

/** The output of a task as it comes: a window of its last segments. */
function outputView() {
  const tail = h("div");
  const body = h("div.stream", { tabindex: 0, role: "log", "aria-label": "Output" }, tail);
  const node = h("section", { hidden: true }, h("h2", "Output"), body);
  let last = 0;
  const add = (blocks, put) => {
    if (!blocks.length) return;
    node.hidden = false;
    const isAtEnd = body.scrollTop + body.clientHeight >= body.scrollHeight - 8;
    put(blocks.map((block) => (block.type === "text" ? h("div", block.text) : contentView([block]))));
    while (body.childElementCount > SEGMENTS) body.firstElementChild.remove();
    if (isAtEnd) body.scrollTop = body.scrollHeight;
  };
  const append = (blocks) => add(blocks, (nodes) => tail.before(...nodes));
  return {
    node,
    end: (blocks) => add(blocks, (nodes) => replace(tail, nodes)),
    last: () => last,
    start(segments) {
      last = Math.max(0, segments - SEGMENTS);
      if (last) append([{ type: "omitted", reason: "earlier output. Copy the task as JSON to read all of it." }]);
    },
    add({ first, blocks, count }) {
      // The browser connected again, and got the same segments again.
      if (first + count - 1 <= last) return;
      append(blocks.slice(Math.max(0, last + 1 - first)));
      last = first + count - 1;
    },
  };
}
