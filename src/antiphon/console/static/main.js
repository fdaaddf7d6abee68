// The frame of the console: navigation, the page that is open, live changes, theme and help.

import { connection, get, post, stream } from "./lib/api.js";
import { confirm, showDialog } from "./lib/dialog.js";
import { h, replace } from "./lib/dom.js";
import { addShortcuts, shortcuts } from "./lib/keys.js";
import { signal } from "./lib/state.js";
import { toast } from "./lib/toast.js";
import { icon, pageHead, problemNotice } from "./lib/view.js";

/** @typedef {typeof app} App */

/** How often open questions are counted even without a change: the console listens to servers only for pages that ask. */
const COUNT_MS = 60_000;

const root = document.documentElement;
const base = new URL(document.baseURI).pathname;
const main = h("main", { id: "main", tabindex: "-1" });
const banner = h("div.banner", { role: "status", hidden: true });
const badge = h("span.badge", { hidden: true });
const listeners = new Map();
let current = /** @type {any} */ (null);
let opening = 0;

/** What a page gets. */
const app = {
  /** Who looks, and at what: the answer of `/api/session`. */
  session: /** @type {any} */ (null),
  /** The theme that is shown, `light` or `dark`. */
  theme: signal("light"),
  navigate,
  live,
  toast,
  confirm,
};

/** Opens an address of the console, such as `/tasks?outcome=failed`. */
function navigate(path, { replace = false } = {}) {
  const url = new URL(path.replace(/^\//, ""), document.baseURI);
  history[replace ? "replaceState" : "pushState"](null, "", url);
  return openPage();
}

/** Calls a function after each change of a topic; returns a function that ends this. */
function live(topic, callback) {
  const callbacks = listeners.get(topic) ?? new Set();
  listeners.set(topic, callbacks.add(callback));
  return () => void callbacks.delete(callback);
}

async function openPage() {
  const number = ++opening;
  const segments = location.pathname.slice(base.length).split("/").filter(Boolean).map(decodeURIComponent);
  const { pages, home } = app.session;
  const [first = home, ...params] = segments;
  const label = pages[first] ?? "Not found";
  for (const link of document.querySelectorAll("nav li a")) link.ariaCurrent = link.getAttribute("href") === first ? "page" : null;
  let page;
  let title = label;
  try {
    if (!pages[first]) throw new Error("There is no such page.");
    const module = await import(`./pages/${first === "tasks" && params[1] ? "task" : first}.js`);
    title = module.title;
    page = await module.open(app, params);
  } catch (error) {
    console.error(error);
    page = { node: h("div.page", pageHead(label), problemNotice(error, openPage)) };
  }
  if (number !== opening) return page.close?.();
  const active = document.activeElement;
  const focuses = current && (active === document.body || active?.closest("nav"));
  current?.close?.();
  current = page;
  document.title = `${title} · Antiphon`;
  replace(main, page.node);
  window.scrollTo(0, 0);
  if (focuses) main.focus({ preventScroll: true });
}

// Live changes: one stream for the whole page.

function startLive() {
  stream("/api/live", {
    ready: () => changed([...listeners.keys()]),
    changed: ({ topics }) => changed(topics),
    problem: () => setTimeout(startLive, 5000),
  });
}

function changed(topics) {
  for (const topic of topics) for (const callback of [...(listeners.get(topic) ?? [])]) callback();
}

/** Keeps the number of open questions beside the inbox current. */
async function countQuestions() {
  const found = await get("/api/inbox/count").catch(() => null);
  if (found) replace(badge, found.badge).hidden = !found.badge;
}

const setBanner = (...content) => (replace(banner, content).hidden = !content.length);

const on = (name, ...content) => connection.addEventListener(name, () => setBanner(...content));

on("offline", "The console does not respond. This page tries again by itself.");
on("online");
on("signed-out", "You are signed out.", h("button", { onclick: () => location.reload() }, "Sign in"));

// Theme

const dark = matchMedia("(prefers-color-scheme: dark)");
const applyTheme = () => app.theme.set(root.dataset.theme ?? (dark.matches ? "dark" : "light"));

function switchTheme() {
  root.dataset.theme = app.theme.get() === "dark" ? "light" : "dark";
  localStorage.setItem("antiphon-theme", root.dataset.theme);
  applyTheme();
}

dark.addEventListener("change", applyTheme);

// Help, and the dialog about the person

const KEY_NAMES = { ArrowDown: "↓", ArrowUp: "↑", Escape: "Esc" };
const close = () => h("button", { onclick: (event) => event.target.closest("dialog").close() }, "Close");

function showHelp() {
  const rows = [...shortcuts(), { key: "Enter", label: "Open" }, { key: "Ctrl-Enter", label: "Send" }].map(({ key, label }) => h("div", h("dt", h("kbd", KEY_NAMES[key] ?? key)), h("dd", label)));
  showDialog("Keyboard", h("dl.keys", rows), close());
}

async function showLink(event) {
  event.target.closest("dialog").close();
  const { path } = await post("/api/sign-in-links");
  const address = new URL(path, document.baseURI).href;
  const input = h("input.mono", { value: address, readonly: true, "aria-label": "Address" });
  const copy = async () => {
    await navigator.clipboard.writeText(address);
    toast("The address is copied.");
  };
  const text = h("p", "Open it in a browser on this machine. It works once.");
  showDialog("Sign in another browser", [text, input], [close(), h("button.primary", { onclick: copy }, "Copy")]);
  input.select();
}

async function signOut() {
  await post("/sign-out");
  location.reload();
}

function showPerson() {
  const { user, version } = app.session;
  showDialog(
    user.name,
    [h("p", user.role), h("p.muted", `Antiphon ${version}`)],
    [close(), h("button", { onclick: signOut }, "Sign out"), user.isLocal && h("button.primary", { onclick: showLink }, "Sign in another browser")],
  );
}

// The frame

const navigationLink = ([path, label]) => h("li", h("a", { href: path }, icon(path), h("span", label), path === "inbox" && badge));

function frame() {
  const { user, pages } = app.session;
  const tool = (name, label, onclick) => h(`button.quiet.icon.${name}`, { onclick, "aria-label": label, title: label }, icon(name));
  const skip = (event) => (event.preventDefault(), main.focus());
  return [
    h("a.skip", { href: "#main", onclick: skip }, "Skip to the page"),
    h(
      "nav",
      { "aria-label": "Console" },
      h("a.mark", { href: "inbox" }, h("img", { src: "icon.svg", alt: "" }), h("span", "Antiphon")),
      h("ul", Object.entries(pages).map(navigationLink)),
      h(
        "div.nav-tools",
        h("button.quiet.person", { onclick: showPerson, "aria-label": user.name }, icon("person"), h("span.cut", user.name)),
        tool("theme", "Switch between light and dark", switchTheme),
        tool("help", "Keyboard", showHelp),
      ),
    ),
    h("div.content", banner, main),
  ];
}

document.addEventListener("click", (event) => {
  const link = /** @type {any} */ (event.target).closest?.("a[href]");
  if (!link || link.target || link.download || event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const url = new URL(link.href);
  if (url.origin !== location.origin || !url.pathname.startsWith(base)) return;
  event.preventDefault();
  navigate(url.pathname.slice(base.length) + url.search);
});
window.addEventListener("popstate", openPage);

try {
  app.session = await get("/api/session");
  applyTheme();
  replace(document.body, frame());
  addShortcuts([
    ...Object.entries(app.session.pages).map(([path, label], at) => ({ key: String(at + 1), label, run: () => navigate(path) })),
    { key: "?", label: "This help", run: showHelp },
  ]);
  await openPage();
  live("inbox", countQuestions);
  setInterval(() => document.hidden || countQuestions(), COUNT_MS);
  countQuestions();
  startLive();
} catch (error) {
  replace(document.body, h("main.alone", problemNotice(error, () => location.reload())));
}
