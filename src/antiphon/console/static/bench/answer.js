// Shows answers as people would see them, and as JSON.

import { contentView, sourceView } from "../lib/content.js";
import { h, replace } from "../lib/dom.js";
import { dataView } from "../lib/views.js";
import { button, tabs } from "./parts.js";

/** Returns an answer in two tabs. `shown` has the data of a result, and which blocks only repeat it. */
export function answerView(bench, outcome, shown) {
  const node = h("div.bench-shown");
  const show = (tab) =>
    replace(node, tabs("Show as", ["Answer", "JSON"], tab, show), tab ? h("pre", { tabindex: "0" }, JSON.stringify(outcome, null, 2)) : contentOf(bench, outcome, shown));
  return show(0);
}

function contentOf(bench, { contents, messages, content, isError }, { data, repeating = [] }) {
  if (contents) return contents.map((each) => h("figure.bench-shown", h("figcaption.muted", h("code", each.uri), ` ${each.mimeType ?? ""}`), sourceView(each)));
  if (messages) return messagesView(bench, messages);
  const parts = content.filter((_, at) => !repeating.includes(at)).map((block) => blockView(bench, block));
  if (data !== undefined) parts.push(h("div.scroll", dataView(data)));
  return h(isError ? "div.notice.error" : "div.bench-shown", parts.length ? parts : h("p.muted", "The answer is empty."));
}

/** Returns the messages of a prompt, or of a question to a model. */
export const messagesView = (bench, messages) =>
  messages.map(({ role, content }) => h("div.bench-said", h("span.chip", role), [content].flat().map((block) => blockView(bench, block))));

/** Returns a content block. A link to a resource can be read. */
export function blockView(bench, block) {
  if (block.type !== "resource_link") return contentView([block]);
  return h("p", h("strong", block.title ?? block.name), " ", h("code", block.uri), " ", button("Read", () => bench.read(block.uri)));
}
