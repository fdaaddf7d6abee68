// The inbox: the open questions that the person can answer, oldest first, beside the one that is chosen.

import { get, post } from "../lib/api.js";
import { cell, repeated } from "../lib/cells.js";
import { h, replace } from "../lib/dom.js";
import { addShortcuts, listShortcuts } from "../lib/keys.js";
import { answerForm, confirmDecline } from "../lib/question.js";
import { age, ago, left } from "../lib/time.js";
import { emptyState, pageHead, problemNotice } from "../lib/view.js";

export const title = "Inbox";
const SOON_MS = 3_600_000;
const narrow = matchMedia("(max-width: 720px)");

/** Returns the id of a question: how the address of the page names it. */
const idOf = ({ place }) => String(new URLSearchParams(place));
const pathOf = ({ place }, rest) => `/api/inbox/${encodeURIComponent(place.kind)}/${encodeURIComponent(place.source)}/${rest}`;
const timeLeft = ({ deadline }) => deadline && h("span", { class: deadline - Date.now() < SOON_MS && "soon" }, left(deadline));

/** @param {any} app */
export async function open(app) {
  const { mayWrite } = app.session;
  /** The questions of the list, as the API returns them. @type {any[]} */
  let rows = [];
  /** The answer of the API. @type {any} */
  let latest;
  let pages = 1;
  let drawn = "";
  /** The id of the question beside the list. */
  let chosen = "";
  /** Questions that are shown, or whose answer the person has begun, by id. @type {Map<string, ReturnType<typeof createView>>} */
  const views = new Map();
  /** Questions that the person closed while the list is fetched, which may still contain them. */
  const gone = new Set();
  const without = (found) => found.filter((each) => !gone.has(idOf(each)));
  const refresh = repeated(fetchAll).now;

  const filter = h("input", { type: "search", placeholder: "Filter", "aria-label": "Filter questions", oninput: () => ((pages = 1), refresh()) });
  const notices = h("div.inbox-notices");
  const list = h("ol.rows.inbox-list", { "aria-label": "Open questions" });
  const foot = h("div.inbox-foot");
  const detail = h("section.inbox-detail", { "aria-label": "Question" });
  const split = h("div.split.inbox", h("div.inbox-side", list, foot), detail);
  const view = () => views.get(chosen);
  const focusRow = (id) => [...list.querySelectorAll("button")].find((each) => each.dataset.id === id)?.focus();
  const showProblems = (problems) => replace(notices, problems.map((each) => problemNotice(each, refresh)));

  async function fetchAll() {
    gone.clear();
    try {
      latest = await get("/api/inbox", { pages, filter: filter.value });
      rows = without(latest.questions);
      showProblems(latest.problems);
    } catch (error) {
      return showProblems([error]);
    }
    await Promise.all([...views.values()].map((each) => each.check()));
    if (!chosen && !narrow.matches) choose(rows[0]);
    render();
  }

  /** Returns the rows: open questions, and closed ones until the person dismisses them. */
  function shown() {
    const open = new Set(rows.map(idOf));
    const closed = [...views].filter(([id, each]) => each.state === "closed" && !open.has(id)).map(([, each]) => each.question);
    return [...closed, ...rows].sort((one, other) => one.asked - other.asked);
  }

  function render() {
    const found = shown();
    const state = JSON.stringify([found, chosen, [...views.values()].map((each) => each.state)]);
    if (state !== drawn) {
      drawn = state;
      const active = /** @type {HTMLElement} */ (document.activeElement);
      const focused = list.contains(active) && active.dataset.id;
      replace(list, found.map(row));
      if (focused) focusRow(focused);
    }
    list.hidden = !found.length;
    if (latest) {
      const more = latest.more && h("button", { onclick: () => (pages++, refresh()) }, "Show more");
      replace(foot, !found.length && emptyState(...latest.empty), h("p.muted.small", latest.note), more);
    }
    split.classList.toggle("has-chosen", Boolean(view()));
    const content = view()?.node;
    if (detail.firstElementChild !== (content ?? null)) replace(detail, content);
  }

  function row(each) {
    const id = idOf(each);
    const isClosed = views.get(id)?.state === "closed";
    return h(
      "li",
      h(
        isClosed ? "button.row.closed" : "button.row",
        { dataset: { id }, "aria-current": id === chosen && "true", onclick: () => (choose(each), view()?.focus()) },
        h("span.grow", h("span.message", each.message || each.place.key), h("span.muted.small.cut", each.about)),
        h("span.marks.muted.small", isClosed ? "closed" : [each.asked && age(each.asked), timeLeft(each)]),
      ),
    );
  }

  /** Shows a question beside the list, or none. @param {any} [question] */
  function choose(question) {
    const id = question ? idOf(question) : "";
    if (id === chosen) return;
    if (!view()?.isTouched && view()?.state !== "closed") views.delete(chosen);
    chosen = id;
    if (id && !views.has(id)) views.set(id, createView(question));
    history.replaceState(null, "", new URL(`inbox${id && `?${id}`}`, document.baseURI));
    render();
  }

  /** Goes from a question to the next. @param {string} id */
  function leave(id) {
    const found = shown();
    const at = found.findIndex((each) => idOf(each) === id);
    const next = found[at + 1] ?? found[at - 1];
    choose(narrow.matches ? null : next);
    if (next) focusRow(idOf(next));
    else filter.focus();
  }

  /** Removes a question that was answered or dismissed. @param {string} id */
  function forget(id) {
    leave(id);
    views.delete(id);
    gone.add(id);
    rows = without(rows);
    render();
    refresh();
  }

  function toList() {
    const id = chosen;
    if (document.activeElement === filter) {
      filter.value = "";
      filter.blur();
      refresh();
    }
    if (narrow.matches) choose();
    render();
    focusRow(id);
  }

  /** Creates the view of one question, which keeps what the person types. @param {any} question */
  function createView(question) {
    const id = idOf(question);
    let drawnForm = "";
    /** @type {ReturnType<typeof answerForm> | null} */
    let form = null;
    const head = h("header.question-head");
    const banner = h("div.notice", { role: "status", hidden: true });
    const body = h("div.question-body", { oninput: () => (made.isTouched = true) });
    const back = h("button.quiet.back", { onclick: toList }, "‹ Inbox");
    /** The state is empty while the person can answer, then `sending` or `closed`. */
    const made = { node: h("article.question", back, head, banner, body), question, state: "", isTouched: false, focus, check, decline };

    async function focus() {
      await ready;
      (made.state ? banner.querySelector("button") : form)?.focus();
    }

    /** Fetches the question again, and shows what has changed. */
    async function check() {
      if (made.state) return;
      try {
        const found = await get(pathOf(question, "question"), question.place);
        if (made.state) return;
        if (found.closed) return end(found.closed.text);
        question = made.question = found.question;
        draw();
      } catch (error) {
        if (error.status === 404 && !made.state) end(error.message);
        else if (!form) replace(body, problemNotice(error, check));
      }
    }

    function draw() {
      const facts = [question.asked && ["asked ", ago(question.asked)], timeLeft(question), ...question.facts.map(cell)];
      replace(
        head,
        h("p.muted", h("code", question.tool), " asks ", h("strong", question.whom)),
        h("h2.message", question.message),
        h("p.facts.muted.small", facts.map((each) => each && h("span", each))),
        question.problem && h("p.error", question.problem),
      );
      const wanted = JSON.stringify([question.schema, question.url]);
      if (wanted === drawnForm) return;
      drawnForm = wanted;
      form = answerForm(question, { answer: (content) => send("accept", content), decline, leave: () => leave(id) });
      form.setDisabled(!mayWrite);
      const ask = question.app && mayWrite && h("button", { onclick: ({ target }) => openApp(target) }, "Answer in the App");
      replace(body, ask, form.node, question.note && h("p.help", question.note));
    }

    /** Lets the App of the question ask, above the form. @param {HTMLElement} place */
    async function openApp(place) {
      const { renderApp } = await import("../apps/render.js");
      const asking = renderApp({ app, ...question.app });
      place.replaceWith(asking.node);
      const { action, content } = await asking.answer.catch(({ message }) => (app.toast(message), { action: "cancel" }));
      await asking.close();
      asking.node.replaceWith(place);
      if (action !== "cancel") await send(action, content);
    }

    async function decline() {
      if (made.state || !form || !mayWrite) return;
      if (await confirmDecline(app, question)) send("decline");
    }

    /** @param {"accept" | "decline"} action @param {any} [content] */
    async function send(action, content) {
      if (made.state) return;
      made.state = "sending";
      form?.setDisabled(true);
      try {
        await post(pathOf(question, "answer"), { ...question.place, action, content });
        made.state = "closed";
        app.toast(action === "accept" ? "Answered." : "Declined.");
        forget(id);
      } catch (error) {
        made.state = "";
        form?.setDisabled(false);
        if (error.status === 404) await check();
        else form?.showErrors(error.fields, error.message);
      }
    }

    /** Says that the question is closed. What was typed stays until the person dismisses it. */
    function end(text) {
      made.state = "closed";
      form?.setDisabled(true);
      if (!form) replace(head, h("h2.message", question.message ?? "A question"));
      const typed = made.isTouched && h("p", "What you typed is below. It was not sent.");
      replace(banner, h("p", cell(text)), typed, h("button", { onclick: () => forget(id) }, "Dismiss")).hidden = false;
      render();
    }

    const ready = check();
    return made;
  }

  list.addEventListener("focusin", ({ target }) => {
    const found = shown().find((each) => idOf(each) === target.dataset.id);
    if (found && !narrow.matches) choose(found);
  });
  const place = Object.fromEntries(new URLSearchParams(location.search));
  if (place.key) choose({ place });
  await refresh();
  const ends = [
    app.live("inbox", refresh),
    addShortcuts([
      ...listShortcuts(() => list, ".row"),
      { key: "a", label: "Answer the question", run: () => (chosen || choose(rows[0]), view()?.focus()) },
      { key: "d", label: "Decline the question", run: () => view()?.decline() },
      { key: "/", label: "Filter", run: () => filter.focus() },
      { key: "Escape", label: "Back to the list", run: toList },
    ]),
  ];
  return { node: h("div.page.wide", pageHead(title, filter), notices, split), close: () => ends.forEach((end) => end()) };
}
