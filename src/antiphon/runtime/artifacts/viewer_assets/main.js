// Reads the artifact through the host, and shows it. Without an address in the page, it shows the artifact of the
// tool's result. If the host does not pass reads on to the server, it shows what the result itself contains.

const MAX_CHARACTERS = 4 * 1024 * 1024;
const MAX_MARKDOWN_CHARACTERS = 256 * 1024;
const MAX_PAGES = 100;

const element = (id) => document.getElementById(id);
let host = {};
let context = {};
let result = null;
let reading = null;
let isShown = false;
let hasFailed = false;

const bridge = new Bridge({
  "ui/notifications/tool-result": (params) => {
    result = params;
    showResult();
  },
  "ui/notifications/tool-cancelled": () => {
    if (!isShown) say("The call was cancelled.");
  },
  "ui/notifications/host-context-changed": (params) => applyContext(params),
});

function say(text, isProblem = false) {
  element("status").textContent = text;
  element("status").className = isProblem ? "problem" : "";
}

function show(node, about, note = "") {
  isShown = true;
  element("view").replaceChildren(node);
  element("about").textContent = about;
  say(note);
}

function applyContext(changes) {
  context = { ...context, ...changes };
  const root = document.documentElement;
  if (context.theme === "light" || context.theme === "dark") root.style.colorScheme = context.theme;
  for (const [name, value] of Object.entries(context.styles?.variables ?? {})) {
    if (name.startsWith("--") && typeof value === "string") root.style.setProperty(name, value);
  }
  const isFull = context.displayMode === "fullscreen";
  element("fullscreen").hidden = !(context.availableDisplayModes ?? []).includes(isFull ? "inline" : "fullscreen");
  element("fullscreen").textContent = isFull ? "Leave full screen" : "Full screen";
}

element("fullscreen").onclick = async () => {
  const mode = context.displayMode === "fullscreen" ? "inline" : "fullscreen";
  try {
    applyContext({ displayMode: (await bridge.request("ui/request-display-mode", { mode })).mode });
  } catch (error) {
    say(error.message, true);
  }
};

async function openLink(url) {
  try {
    if (!host.openLinks) throw new Error(`This host opens no links: ${url}`);
    await bridge.request("ui/open-link", { url });
  } catch (error) {
    say(error.message, true);
  }
}

/** Reads the contents of a resource, which come in pages, up to a limit. */
async function readAll(uri) {
  let contents = null;
  let text = "";
  let next = uri;
  for (let pages = 0; next && pages < MAX_PAGES && text.length < MAX_CHARACTERS; pages++) {
    const page = (await bridge.request("resources/read", { uri: next })).contents?.[0];
    if (!page) break;
    contents ??= page;
    text += page.text ?? "";
    next = page.text === undefined ? null : page._meta?.next;
  }
  if (!contents) throw new Error("The server sent no contents.");
  const isBlob = contents.text === undefined;
  return { ...contents, text: isBlob ? undefined : text, isCut: Boolean(isBlob ? contents._meta?.next : next) };
}

async function showArtifact(uri, title) {
  reading = uri;
  if (title) element("title").textContent = document.title = title;
  try {
    const contents = await readAll(uri);
    const size = contents._meta?.size;
    const about = [contents._meta?.["x-artifact-type"], contents.mimeType, size === undefined ? "" : `${size.toLocaleString()} bytes`];
    show(contentsView(contents), about.filter(Boolean).join(" · "), contents.isCut ? "This is the beginning of the artifact." : "");
  } catch (error) {
    hasFailed = true;
    if (result) showInline();
    say(`The artifact cannot be read: ${error.message}`, true);
  }
}

function contentsView({ text, blob, mimeType, isCut }) {
  const kind = (mimeType ?? "text/plain").split(";")[0].trim().toLowerCase();
  if (text === undefined) return mediaView(kind, blob, isCut);
  if (kind === "image/svg+xml") return h("img", { src: `data:${kind},${encodeURIComponent(text)}`, alt: "" });
  try {
    if (/[/+]json$/.test(kind) && !isCut) return dataView(JSON.parse(text));
  } catch {
    // It says that it is JSON and is not: it is shown as text.
  }
  if (kind === "text/csv" || kind === "text/tab-separated-values") {
    const [columns, ...rows] = separatedRows(text, kind === "text/csv" ? "," : "\t");
    if (columns) return sortableTable(columns, rows, scalar);
  }
  if (kind === "text/markdown" && text.length <= MAX_MARKDOWN_CHARACTERS) return markdownView(text, openLink);
  return h("pre", text);
}

function mediaView(kind, blob, isCut) {
  const [family] = kind.split("/");
  if (isCut || !["image", "audio", "video"].includes(family)) return h("p.note", `There is no view for ${kind}.`);
  const source = `data:${kind};base64,${blob}`;
  return family === "image" ? h("img", { src: source, alt: "" }) : h(family, { src: source, controls: true });
}

function showResult() {
  const links = (result.content ?? []).filter((block) => block.type === "resource_link");
  const link = links.find((block) => String(block.uri).startsWith("artifact://"));
  // Protocol versions before 2025-06-18 have no links, and the address is in the metadata only.
  const uri = link?.uri ?? result._meta?.ui_uri?.replace(/^ui:/, "artifact:");
  if (!reading && uri && host.serverResources) showArtifact(uri, link?.title);
  else if (!reading || hasFailed) showInline();
}

/** Shows what the result itself contains: the value of a small artifact, or its text. */
function showInline() {
  const data = result.structuredContent;
  const box = h("div", { class: result.isError && "problem" });
  if (data?.artifact !== undefined) box.append(dataView(data.artifact));
  else {
    for (const block of result.content ?? []) {
      if (block.type === "text") box.append(markdownView(String(block.text), openLink));
      else if (block.type === "image") box.append(mediaView(String(block.mimeType), block.data, false));
    }
  }
  show(box, String(data?.["x-artifact-type"] ?? ""));
}

let lastSize = "";
function reportSize() {
  const { width, height } = document.documentElement.getBoundingClientRect();
  const size = { width: Math.ceil(width), height: Math.ceil(height) };
  if (JSON.stringify(size) === lastSize) return;
  lastSize = JSON.stringify(size);
  bridge.notify("ui/notifications/size-changed", size);
}

async function start() {
  const appInfo = { name: "antiphon-artifact", version: "1" };
  const appCapabilities = { availableDisplayModes: ["inline", "fullscreen"] };
  let hello;
  try {
    hello = await bridge.request("ui/initialize", { appInfo, appCapabilities, protocolVersion: PROTOCOL });
  } catch (error) {
    return say(`This page shows an artifact inside an MCP host. ${error.message}`, true);
  }
  host = hello.hostCapabilities ?? {};
  applyContext(hello.hostContext ?? {});
  bridge.notify("ui/notifications/initialized", {});
  new ResizeObserver(reportSize).observe(document.documentElement);
  const uri = document.body.dataset.uri;
  if (!uri) return result || say("Waiting for the result…");
  if (host.serverResources) return showArtifact(uri, document.body.dataset.title);
  if (!result) say("This host does not let the page read the artifact. Waiting for the result…");
}

start();
