// Shows content of results, resources and artifacts as people read it: Markdown, tables, pictures, data.

import { externalLink, h, openExternal, replace } from "./dom.js";
import { dataView, markdownView, separatedRows, sortableTable } from "./views.js";

const PICTURES = ["image/png", "image/jpeg", "image/gif", "image/webp"];
const BASE64 = /^[A-Za-z0-9+/\s]*={0,2}\s*$/;
const MAX_MARKDOWN = 64 * 1024;
/** Whether a text may be Markdown: a heading, a list, a quote, code, a table, emphasis or a link. */
const MARKS = /^(#{1,6} |[-*+] |\d+[.)] |> |```|\|)|\*\*[^*\n]+\*\*|`[^`\n]+`|\[[^\]\n]+\]\(http/m;

const note = (...text) => h("p.muted.small", text);
const beginning = (size) => note("This is the beginning of ", bytes(size), ".");

/** A size for people. */
const bytes = (count) => (count < 1000 ? `${Math.round(count)} bytes` : count < 1e6 ? `${(count / 1000).toFixed(1)} kB` : `${(count / 1e6).toFixed(1)} MB`);

/** The nodes of content blocks. */
export const contentView = (blocks) => h("div.blocks", blocks.map((block) => blockView(block ?? {})));

function blockView({ type, text, size, mimeType, data, uri, name, title, description, reason, resource, ...rest }) {
  const found = resource ?? rest.value?.resource;
  if (type === "text") return [textView(String(text)), size > text.length && beginning(size)];
  if (type === "image" || type === "audio") return mediaView(String(mimeType), String(data));
  if (type === "resource_link") return h("p", externalLink(String(uri), String(title || name || uri)), " ", h("span.muted.small", [mimeType, size && bytes(size), description].filter(Boolean).join(", ")));
  if (type === "omitted") return note("Not shown: ", reason);
  if (type === "resource" && found) return sourceView(found);
  return boundedView("value" in rest || "preview" in rest ? { size, ...rest } : { value: { type, text, ...rest } });
}

/** A text: rendered if it looks like Markdown, with a switch to the text itself. */
export function textView(text, isMarkdown = MARKS.test(text)) {
  const plain = h("div.text", text);
  if (!isMarkdown || text.length > MAX_MARKDOWN) return plain;
  const rendered = h("div.markdown", markdownView(text, openExternal));
  const box = h("div.switched");
  const toggle = h("button.quiet.small", { "aria-pressed": "false", onclick: () => {
    const isPlain = toggle.ariaPressed === "false";
    toggle.ariaPressed = String(isPlain);
    replace(box, toggle, isPlain ? plain : rendered);
  } }, "Plain text");
  return replace(box, toggle, rendered);
}

/** A picture, whose bytes are in base64. Other media are named only. */
function mediaView(type, data) {
  if (PICTURES.includes(type) && BASE64.test(data)) return h("img.picture", { src: `data:${type};base64,${data}`, alt: "Picture in the result" });
  return note(`${type}, ${bytes(data.length * 0.75)}. The console does not show this type.`);
}

/** A resource or an artifact by its type. @param {any} source */
export function sourceView({ mimeType = "", text = "", blob, size = 0 }) {
  if (blob !== undefined) return mediaView(mimeType, blob);
  const [type] = mimeType.split(";");
  const show = () => {
    if (type === "text/csv" || type === "text/tab-separated-values") {
      const [head = [], ...rows] = separatedRows(text, type === "text/csv" ? "," : "\t");
      return sortableTable(head, rows);
    }
    try {
      if (/[/+]json$/.test(type)) return dataView(JSON.parse(text));
    } catch {
      // The text is cut, or it is no JSON.
    }
    return textView(String(text), type === "text/markdown" || undefined);
  };
  return h("div", show(), text.length < size / 4 && beginning(size));
}

/** Data, or the beginning of data that is too large. @param {any} bounded */
export function boundedView({ value, preview, size }) {
  return preview === undefined ? h("div.data", dataView(value)) : h("div", h("pre", { tabindex: 0 }, preview, "…"), beginning(size));
}
