// Turns Markdown into nodes: headings, lists, quotes, code, tables and links. HTML in Markdown stays text.

const MAX_NESTING = 20;
const FENCE = /^ {0,3}(`{3,}|~{3,})(.*)$/;
const HEADING = /^ {0,3}(#{1,6})(?: (.*))?$/;
const RULE = /^ {0,3}(?:(?:\* *){3,}|(?:- *){3,}|(?:_ *){3,})$/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])(?:( {1,4})(.*))?$/;
const QUOTE = /^ {0,3}> ?/;
const BLOCKS = [FENCE, HEADING, RULE, ITEM, QUOTE];
const SPECIAL = /[\\`*_~!\[<\n]|https?:\/\//g;
const ADDRESS = /^(?:<(https?:\/\/[^\s<>]+)>|https?:\/\/[^\s<>"')\]]*[^\s<>"')\].,;:!?])/;
const LINK = /^!?\[([^[\]]{0,1000})\]\(([^\s()<>]{1,2000})(?: +"[^"]{0,500}")?\)/;
const MARKS = { "**": "strong", __: "strong", "*": "em", _: "em", "~~": "del" };

const cellsOf = (line) => line.trim().replace(/^\||(?<!\\)\|$/g, "").split(/(?<!\\)\|/).map((each) => each.trim().replaceAll("\\|", "|"));
const isTableRule = (line = "") => line.includes("-") && cellsOf(line).every((each) => /^:?-+:?$/.test(each));

/** Returns the nodes of a Markdown text. `openLink` is called with the address of a link that was chosen. */
function markdownView(text, openLink) {
  function blocks(lines, depth) {
    const nodes = [];
    let paragraph = [];
    let at = 0;
    /** Ends the paragraph, and adds nodes after it. */
    const add = (...made) => {
      if (paragraph.length) nodes.push(h("p", spans(paragraph.join("\n"))));
      paragraph = [];
      nodes.push(...made);
    };
    /** Returns the next lines that pass a test. */
    const take = (test) => {
      const start = at;
      while (at < lines.length && test(lines[at])) at++;
      return lines.slice(start, at);
    };
    const list = (first) => {
      const isOrdered = (marker) => /\d/.test(marker);
      const node = isOrdered(first) ? h("ol", { start: Number.parseInt(first, 10) }) : h("ul");
      for (;;) {
        const match = ITEM.exec(lines[at] ?? "");
        if (!match || isOrdered(match[2]) !== isOrdered(first) || RULE.test(lines[at])) return node;
        const indent = " ".repeat(match[1].length + match[2].length + (match[3]?.length ?? 1));
        at++;
        // An empty line belongs to the item only if the item goes on after it.
        const isInside = (line) => (line.trim() ? line.startsWith(indent) || !BLOCKS.some((each) => each.test(line)) : lines[at + 1]?.startsWith(indent));
        const inside = take(isInside).map((line) => (line.startsWith(indent) ? line.slice(indent.length) : line.trimStart()));
        const made = blocks([match[4] ?? "", ...inside], depth + 1);
        // A single paragraph stands in the item without a paragraph of its own.
        const isTight = match[4] && made[0]?.tagName === "P" && inside.every((line) => line.trim());
        node.append(h("li", isTight ? [...made.shift().childNodes] : null, made));
        if (!lines[at]?.trim() && ITEM.test(lines[at + 1] ?? "")) at++;
      }
    };
    while (at < lines.length) {
      const line = lines[at++];
      let match;
      if (!line.trim()) {
        add();
      } else if ((match = FENCE.exec(line))) {
        const [, fence] = match;
        const code = take((each) => {
          const end = FENCE.exec(each);
          return !end?.[1].startsWith(fence) || end[2].trim();
        });
        at++;
        add(h("pre", h("code", code.join("\n"))));
      } else if ((match = HEADING.exec(line))) {
        // The page has the only h1.
        add(h(`h${Math.min(match[1].length + 1, 6)}`, spans((match[2] ?? "").trim().replace(/(?:^| )#+$/, ""))));
      } else if (RULE.test(line)) {
        add(h("hr"));
      } else if (QUOTE.test(line) && depth < MAX_NESTING) {
        at--;
        add(h("blockquote", blocks(take((each) => QUOTE.test(each)).map((each) => each.replace(QUOTE, "")), depth + 1)));
      } else if ((match = ITEM.exec(line)) && depth < MAX_NESTING) {
        at--;
        add(list(match[2]));
      } else if (line.includes("|") && isTableRule(lines[at])) {
        at++;
        const rows = take((each) => each.includes("|")).map(cellsOf);
        add(sortableTable(cellsOf(line), rows, (value) => h("span", spans(value))));
      } else {
        paragraph.push(line.trimStart());
      }
    }
    add();
    return nodes;
  }

  /** Returns the nodes of a text inside a block. */
  function spans(text, depth = 0) {
    const nodes = [];
    let end = 0;
    for (const { 0: special, index } of depth < MAX_NESTING ? text.matchAll(SPECIAL) : []) {
      const span = index >= end && spanAt(text, index, special, depth + 1);
      if (!span) continue;
      nodes.push(text.slice(end, index), span[0]);
      end = span[1];
    }
    return [...nodes, text.slice(end)];
  }

  /** Returns the node of the span that begins at a place, and where it ends; nothing if none begins there. */
  function spanAt(text, at, special, depth) {
    const [next = " "] = text.slice(at + 1);
    if (special === "\\") return /[!-/:-@[-`{-~]/.test(next) && [next, at + 2];
    if (special === "\n") return text.endsWith("  ", at) && [h("br"), at + 1];
    const rest = text.slice(at, at + 4000);
    const link = LINK.exec(rest);
    // A picture from elsewhere is not loaded: its text leads to it.
    if (link) return [linkTo(link[2], special === "!" ? link[1] || link[2] : spans(link[1], depth)), at + link[0].length];
    const address = ADDRESS.exec(rest);
    if (address) return [linkTo(address[1] ?? address[0], address[1] ?? address[0]), at + address[0].length];
    const [mark] = /^(?:`{1,20}|\*\*?|__?|~~)/.exec(rest) ?? [""];
    const isCode = special === "`";
    const start = at + mark.length;
    const inWord = special === "_" && /\w/.test(text[at - 1] ?? "");
    if (!mark || inWord || (!isCode && /\s/.test(text[start] ?? " "))) return null;
    const end = text.indexOf(mark, isCode ? start : start + 1);
    if (end < 0 || (!isCode && /\s/.test(text[end - 1]))) return null;
    const inside = text.slice(start, end);
    return [isCode ? h("code", inside) : h(MARKS[mark], spans(inside, depth)), end + mark.length];
  }

  /** Returns a link, if its address is one of the web; the host opens it. */
  function linkTo(url, label) {
    if (!/^https?:\/\//i.test(url)) return h("span", { title: url }, label);
    const onclick = (event) => {
      event.preventDefault();
      openLink(url);
    };
    return h("a", { href: url, title: url, onclick }, label);
  }

  return h("div", blocks(text.replace(/\r\n?/g, "\n").replace(/\t/g, "    ").split("\n"), 0));
}
