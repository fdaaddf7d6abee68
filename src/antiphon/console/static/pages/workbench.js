// The workbench: one server at a time. What it offers, what calls answer, and every message.

import { get, post, stream } from "../lib/api.js";
import { choice } from "../lib/cells.js";
import { showDialog } from "../lib/dialog.js";
import { h, redraw, replace } from "../lib/dom.js";
import { form } from "../lib/form.js";
import { addShortcuts, listShortcuts } from "../lib/keys.js";
import { emptyState, pageHead, problemNotice, statusMark } from "../lib/view.js";
import { editor } from "../bench/editor.js";
import { messagePanel } from "../bench/messages.js";
import { button, tabs } from "../bench/parts.js";

export const title = "Workbench";

const EVENTS = ["snapshot", "call", "question", "questionClosed", "changed", "segment", "log", "messages", "closed"];
const style = h("link", { rel: "stylesheet", href: "bench/style.css" });
const keyOf = ({ kind, ref }) => `${kind} ${ref}`;

/** @param {any} app @param {string[]} params */
export async function open(app, [server]) {
  if (!style.isConnected) document.head.append(style);
  const { servers, addsServers } = app.session;
  const source = servers.find((each) => each.id === server) ?? servers[0];
  /** @type {any} */
  let catalog = null;
  let tab = 0;
  let selected = "";
  let stopEvents = () => {};
  /** The attempt to connect that counts; none once the page is closed. */
  let newest = 0;
  const editors = new Map();
  const listeners = new Set();
  const items = h("div.bench-items");
  const kinds = h("div");
  const filter = h("input", { type: "search", placeholder: "Filter", "aria-label": "Filter the list", oninput: showList });
  const about = h("div.bench-about");
  const main = h("div.bench-main");
  const versions = choice("Protocol version", () => (closeEditors(), connect()));

  /** What the parts of the page share: the connection, its open questions and its subscriptions. */
  const bench = {
    app,
    id: "",
    questions: new Map(),
    /** The requests that start calls. Events wait for them: a call may end before its response is here. */
    started: null,
    subscriptions: new Set(),
    /** Returns a path of the API below the connection. */
    path: (rest) => `/api/workbench/connections/${bench.id}/${rest}`,
    /** Calls a function with the data of each event of its name; returns a function that ends this. */
    listen(handlers) {
      listeners.add(handlers);
      return () => listeners.delete(handlers);
    },
    /** Shows a resource, and reads it. */
    read(uri) {
      ({ tab } = catalog.unlisted);
      openItem({ ...catalog.unlisted, ref: uri, title: uri }).run();
    },
    /** Shows an App of the server. */
    renderApp: async (options) => (await import("../apps/render.js")).renderApp({ app, server: source.id, connection: bench.id, ...options }),
  };
  bench.listen({
    snapshot({ questions, subscriptions }) {
      bench.questions = new Map(questions.map((each) => [each.id, each]));
      bench.subscriptions = new Set(subscriptions);
    },
    question: (data) => bench.questions.set(data.id, data),
    questionClosed: ({ id }) => bench.questions.delete(id),
    changed: ({ list }) => list && load(),
    closed: () => replace(about, statusMark("cancelled", "Closed. Reconnect to go on.")),
  });
  const messages = messagePanel(bench);

  // The connection

  async function connect(again = false) {
    stopEvents();
    const mine = ++newest;
    try {
      const protocol = versions.value;
      const found = await post("/api/workbench/connections", { server: source.id, protocol, again });
      if (mine !== newest) return;
      bench.id = found.id;
      versions.fill(found.versions, protocol);
      const tell = (name) => async (data) => (await bench.started, [...listeners].forEach((each) => each[name]?.(data)));
      if (bench.id) stopEvents = stream(bench.path("events"), Object.fromEntries(EVENTS.map((name) => [name, tell(name)])));
      if (found.error) throw new Error(found.error);
      replace(
        about,
        h("p.bench-name", statusMark("done", ""), h("strong", found.title), ` ${found.release}`),
        h("p.muted", `Speaks ${found.version}`),
        found.instructions && h("details", h("summary", "Instructions"), h("p.pre", found.instructions)),
      );
      await load();
    } catch (error) {
      replace(about, statusMark("failed", "Not connected"));
      replace(main, problemNotice(error, () => connect(true)));
    }
  }

  function closeEditors() {
    for (const each of editors.values()) each.close();
    editors.clear();
  }

  // The list

  async function load() {
    catalog = await get(bench.path("catalog"));
    const [first] = catalog.items;
    if (first && !catalog.tabs[tab].count) ({ tab } = first);
    const item = catalog.items.find((each) => keyOf(each) === selected) ?? catalog.items.find((each) => each.tab === tab);
    if (item) openItem(item);
    else replace(main, emptyState("The server offers nothing", "It has no tools, resources or prompts. Check says what it declares."));
  }

  function showList() {
    if (!catalog) return;
    const labels = catalog.tabs.map(({ label, count }) => [label, h("span.count", count)]);
    redraw(kinds, tabs("Kind", labels, tab, (at) => ((tab = at), showList())));
    const wanted = filter.value.trim().toLowerCase();
    const found = catalog.items.filter((each) => each.tab === tab && `${each.title} ${each.ref} ${each.description}`.toLowerCase().includes(wanted));
    const { error } = catalog.tabs[tab];
    const row = (each) =>
      h("button.bench-item", { "aria-current": keyOf(each) === selected && "true", onclick: () => choose(each) }, h("strong", each.title), h("span.muted", each.about));
    redraw(items, error && h("p.error", error), found.map(row), !found.length && !error && h("p.muted", wanted ? "Nothing fits the filter." : "The server has none."));
  }

  /** Opens an item. On a phone, its editor is below the list. */
  function choose(item) {
    openItem(item);
    if (main.offsetTop > items.offsetTop) main.scrollIntoView();
  }

  function openItem(item) {
    selected = keyOf(item);
    const before = editors.get(selected);
    const fingerprint = JSON.stringify(item);
    const opened = before?.fingerprint === fingerprint ? before : { ...editor(bench, item, before?.values()), fingerprint };
    if (opened !== before) before?.close();
    editors.set(selected, opened);
    replace(main, opened.node);
    showList();
    return opened;
  }

  // Servers

  async function examine() {
    const box = h("div", h("p.muted", "The checks only read. They call no tool."));
    const dialog = showDialog(`Check of ${source.name}`, box, button("Close", () => dialog.close()));
    try {
      const { ok, verdict, error, checks } = await post(`/api/servers/${source.id}/doctor`);
      const lines = checks.map(({ mark, name, says, advice }) => [h("dt", statusMark(mark, name)), h("dd", says, advice && h("p.muted", advice))]);
      replace(box, h("p", statusMark(ok ? "done" : "failed", verdict)), error && h("p.pre", error), h("dl.bench-checks", lines));
    } catch (error) {
      replace(box, problemNotice(error));
    }
  }

  async function add() {
    const onsubmit = async (values) => {
      try {
        const added = await post("/api/servers", values);
        servers.push({ ...added, kind: "url", isAdded: true });
        dialog.close();
        app.navigate(`/workbench/${added.id}`);
      } catch (error) {
        fields.showErrors(error.fields, error.message);
      }
    };
    const fields = form(await get("/api/servers/form"), { submitLabel: "Add", onsubmit });
    const dialog = showDialog("Add a server", fields.node);
    fields.focus();
  }

  async function remove() {
    await post(`/api/servers/${source.id}/remove`);
    servers.splice(servers.indexOf(source), 1);
    app.navigate("/workbench");
  }

  const place = choice("Server", (id) => app.navigate(`/workbench/${id}`));
  place.fill(servers.map(({ id, name }) => [id, name]), source?.id);
  const how = addsServers ? "Add one by its address, or name" : "Name";
  const node = h(
    "section.page.bench",
    pageHead(
      title,
      source && [place, versions, button("Check", examine), button("Reconnect", () => connect(true))],
      addsServers && button("Add server", add),
      source?.isAdded && button("Remove", remove),
    ),
    source
      ? [h("div.bench-columns", h("aside.bench-side", { "aria-label": "Server" }, about, kinds, filter, items), main), messages]
      : emptyState("There is no server to try", `${how} it when you start the console: `, h("code", "antiphon console http://127.0.0.1:8000/mcp")),
  );
  const removeShortcuts = addShortcuts([
    ...listShortcuts(() => items, "button"),
    { key: "/", label: "Filter", run: () => filter.focus() },
    { key: "m", label: "Messages", run: () => (messages.open = !messages.open) },
  ]);
  if (source) {
    replace(main, h("p.muted", `Connecting to ${source.name}…`));
    connect();
  }
  return { node, close: () => ((newest = 0), removeShortcuts(), stopEvents(), closeEditors()) };
}
