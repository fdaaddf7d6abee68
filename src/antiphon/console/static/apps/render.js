// Shows an App of a server on a page of the console, in a frame of the sandbox's origin.

import { get, post } from "../lib/api.js";
import { h, replace } from "../lib/dom.js";
import { dataView } from "../lib/views.js";
import { connect, refusal } from "./bridge.js";
import { hostContext } from "./context.js";

const MODES = ["inline", "fullscreen"];
const MAX_HEIGHT = 800;
const MAX_ACTIVITY = 200;
const MAX_TEXT = 4000;
const MAX_PARTS = 500;

/** The settings that the person has agreed to, until the page is reloaded. */
const agreed = new Set();

/**
 * Shows an App. `input` and `result` may follow later. Await `close()` before you remove the node. With a `question`, the
 * App asks the person; `answer` has the action and the content, and is rejected if the App cannot ask. Experimental.
 * @param {{app: any, server: string, uri: string, connection?: string, tool?: any, input?: any, result?: any, question?: any}} options
 */
export function renderApp({ app, server, uri, connection, tool, input, result, question }) {
  const { theme, session } = app;
  const label = `App ${uri} of ${session.servers.find(({ id }) => id === server)?.name ?? server}`;
  const path = `/api/servers/${encodeURIComponent(server)}/app`;
  const body = h("div.app-body", "Loading the App…");
  const log = h("ol");
  const activity = h("details", { hidden: true }, h("summary", "Activity of the App"), log);
  const size = h("button.quiet", { hidden: true, onclick: () => setMode(mode === "inline" ? "fullscreen" : "inline") }, "Full screen");
  const leave = ({ key }) => key === "Escape" && setMode("inline");
  const node = h("section.app", { "aria-label": label, onkeydown: leave }, h("header", h("span", label), size), body, activity);
  const history = [];
  let modes = MODES;
  let mode = "inline";
  let isReady = false;
  let hasInput = false;
  let isAsking = false;
  let told = "";
  let stop = () => {};
  /** @type {any} */
  let page, frame, bridge, answered;
  const answer = new Promise((resolve, reject) => (answered = { resolve, reject }));
  answer.catch(() => {});

  // The frame

  async function open() {
    page = await get(path, { uri, connection });
    const key = JSON.stringify([path, uri, page.settings]);
    if (!page.wishes.length || agreed.has(key)) return start();
    const agree = () => (agreed.add(key), start());
    replace(
      body,
      h("p", "This App reaches beyond its server. It asks to:"),
      h("ul", page.wishes.map((each) => h("li", each))),
      h("button.primary", { onclick: agree }, "Show the App"),
    );
  }

  function start() {
    frame = h(page.settings.prefersBorder === false ? "iframe" : "iframe.bordered", {
      title: label,
      sandbox: "allow-scripts allow-same-origin allow-forms",
      referrerpolicy: "no-referrer",
      allow: page.allow,
      src: `${page.sandbox}&console=${encodeURIComponent(location.origin)}`,
    });
    bridge = connect(frame, page.origin, methods);
    replace(body, frame);
  }

  function end(message) {
    replace(body, h("p.muted", { role: "status" }, message));
    answered.reject(new Error(message));
  }

  /** Tells the App that it ends, waits at most a second for it, and removes it. */
  async function close(reason = "The page was closed.") {
    stop();
    const isTold = isReady ? bridge.request("ui/resource-teardown", { reason }, 1) : null;
    isReady = false;
    await isTold?.catch(() => {});
    bridge?.close();
    end("The App is closed.");
  }

  // What the App may ask for, and tell

  const methods = {
    ping: () => ({}),
    "ui/notifications/sandbox-proxy-ready": load,
    "ui/initialize": initialize,
    "ui/notifications/initialized": begin,
    "ui/notifications/size-changed": ({ height }) => {
      if (height >= 0) frame.style.height = `${Math.min(Math.ceil(height), MAX_HEIGHT)}px`;
    },
    "ui/notifications/request-teardown": () => close("The App asked for it."),
    "ui/open-link": openLink,
    "ui/message": ({ content }) => note("message", content),
    "ui/update-model-context": (params) => note("context for the model", params),
    "ui/request-display-mode": (params) => setMode(params.mode === "inline" || navigator.userActivation.isActive ? params.mode : mode),
    "notifications/message": ({ level, data }) => note(`log ${level}`, data),
    "tools/call": ({ name, arguments: given }) => forward("tool", name, post(`${path}/call`, { name, arguments: given, connection })),
    "resources/read": (params) => forward("resource", params.uri, get(`${path}/resource`, { uri: params.uri, connection })),
  };

  /** Gives the App to the sandbox; again, after a page has taken the frame off and put it back. */
  function load() {
    stop();
    isReady = false;
    frame.style.height = "";
    bridge.notify("ui/notifications/sandbox-resource-ready", { html: page.html, allow: page.allow });
  }

  function initialize({ appCapabilities }) {
    const known = appCapabilities?.availableDisplayModes;
    if (Array.isArray(known)) modes = MODES.filter((each) => each === "inline" || known.includes(each));
    size.hidden = modes.length < 2;
    const definition = typeof tool === "string" ? { name: tool, inputSchema: { type: "object" } } : tool;
    const around = context();
    told = JSON.stringify(around);
    const { hostCapabilities, ...host } = page.host;
    return {
      ...host,
      protocolVersion: "2026-01-26",
      hostCapabilities: { ...hostCapabilities, ...(question && { elicitation: {} }) },
      hostContext: { ...around, ...(tool && { toolInfo: { tool: definition } }) },
    };
  }

  async function openLink({ url }) {
    const address = new URL(URL.canParse(url) ? url : "about:blank");
    if (!/^https?:$/.test(address.protocol)) throw refusal("Only http and https addresses are opened.");
    if (isAsking) throw refusal("The person is asked about another link.");
    isAsking = true;
    const text = `${label} wants to open ${address.href}`;
    const isAllowed = await app.confirm({ title: `Open ${address.host}?`, text, action: "Open" });
    isAsking = false;
    if (!isAllowed) throw refusal("The person did not open the link.");
    window.open(address.href, "_blank", "noopener,noreferrer");
  }

  async function forward(kind, name, sent) {
    note(kind, name);
    const { result: found, error } = await sent;
    if (error) throw refusal(error.message, error.code);
    return found;
  }

  /** Shows the person what the App did. */
  function note(kind, value) {
    let left = MAX_PARTS;
    const part = (_, each) => (left-- < 0 ? undefined : Array.isArray(each) ? each.slice(0, MAX_PARTS) : each);
    const text = typeof value === "string" ? value : (JSON.stringify(value, part) ?? "");
    activity.hidden = false;
    log.append(h("li", h("strong", kind.slice(0, 40)), " ", text.slice(0, MAX_TEXT)));
    if (log.childElementCount > MAX_ACTIVITY) log.firstElementChild.remove();
  }

  // What the App is told

  function begin() {
    if (isReady) return;
    isReady = true;
    for (const [name, params] of history) notify(name, params);
    const stopTheme = theme.listen(tellContext);
    const observer = new ResizeObserver(tellContext);
    observer.observe(node);
    stop = () => (stopTheme(), observer.disconnect());
    if (question) bridge.request("elicitation/create", question).then(propose).then(answered.resolve, answered.reject);
  }

  /** Shows the person what the App wants to answer: only the person sends it. */
  async function propose(wanted) {
    const text = [h("p", question.message), dataView(wanted)];
    if (wanted.action !== "cancel" && !(await app.confirm({ title: "Send this answer?", text, action: "Send" }))) throw new Error("You did not send the answer of the App.");
    return wanted;
  }

  function notify(name, params) {
    if (isReady) bridge.notify(`ui/notifications/${name}`, params);
  }

  function tell(name, params) {
    history.push([name, params]);
    notify(name, params);
  }

  /** Tells the App what is around it, if that has changed. */
  function tellContext() {
    const around = context();
    const text = JSON.stringify(around);
    if (text !== told) notify("host-context-changed", around);
    told = text;
  }

  function context() {
    const { clientWidth: width, clientHeight: height } = body;
    const containerDimensions = mode === "inline" ? { width, maxHeight: MAX_HEIGHT } : { width, height };
    return { ...hostContext(theme.get(), page.tokens), displayMode: mode, availableDisplayModes: MODES, containerDimensions };
  }

  function setMode(wanted) {
    if (modes.includes(wanted)) {
      mode = wanted;
      node.classList.toggle("full", mode === "fullscreen");
      replace(size, mode === "inline" ? "Full screen" : "Leave full screen").focus();
      tellContext();
    }
    return { mode };
  }

  /** Sends the arguments of the tool to the App: parts of them with `partial`, then all of them, once. */
  function showInput(given, { partial = false } = {}) {
    if (!hasInput) tell(partial ? "tool-input-partial" : "tool-input", { arguments: given });
    hasInput ||= !partial;
  }

  /** Sends the result of the tool to the App. */
  function showResult(given) {
    showInput({});
    tell("tool-result", given);
  }

  /** Tells the App that the call of the tool was cancelled. */
  const cancel = (reason) => tell("tool-cancelled", { reason });

  if (input) showInput(input);
  if (result) showResult(result);
  open().catch((error) => end(error.message));
  return { node, answer, close, showInput, showResult, cancel };
}
