// Shows data: lists of records as tables that can be sorted, everything else as a tree that can be folded.

const ROWS_AT_ONCE = 200;
const MAX_COLUMNS = 100;

const isObject = (value) => typeof value === "object" && value !== null;
const isTable = (value) => Array.isArray(value) && value.length > 0 && value.every((each) => isObject(each) && !Array.isArray(each));
const scalar = (value) => h(typeof value === "string" ? "span" : "code", String(value));

/** Appends some items to a parent, and shows a button for more of them. */
function appendPaged(parent, items, make, around = (button) => button) {
  let shown = 0;
  const more = h("button", { onclick: show });
  const row = around(more);
  function show() {
    row.remove();
    const page = items.slice(shown, shown + ROWS_AT_ONCE);
    for (const item of page) parent.append(make(item));
    shown += page.length;
    more.textContent = `Show more (${(items.length - shown).toLocaleString()} left)`;
    if (shown < items.length) parent.append(row);
  }
  show();
}

/** Returns the nodes for a value. `isTop` opens the values in it. */
function dataView(value, isTop = true) {
  if (isTable(value)) {
    const columns = [...new Set(value.flatMap((each) => Object.keys(each)))].slice(0, MAX_COLUMNS);
    return sortableTable(columns, value.map((each) => columns.map((name) => each[name])));
  }
  if (!isObject(value)) return scalar(value);
  const entries = Object.entries(value);
  if (!entries.length) return h("code", JSON.stringify(value));
  const box = h("div");
  appendPaged(box, entries, ([key, item]) => {
    const label = h("span.key", `${key}: `);
    return isObject(item) ? folded(item, isTop, label) : h("div", label, scalar(item));
  });
  return box;
}

/** Returns a list or a record that can be opened. What is in it is made then, so a deep value costs nothing. */
function folded(value, isOpen, label) {
  const { length } = Object.keys(value);
  const fill = () => details.childElementCount < 2 && details.append(h("div", dataView(value, false)));
  const details = h("details", { open: isOpen, ontoggle: fill }, h("summary", label, Array.isArray(value) ? `[${length}]` : `{${length}}`));
  if (isOpen) fill();
  return details;
}

/** Returns a table of rows of cells. A button in each heading sorts by its column. `show` makes a cell's node. */
function sortableTable(names, rows, show = (value) => (isObject(value) ? folded(value, false) : String(value))) {
  const columns = names.slice(0, MAX_COLUMNS);
  const body = h("tbody");
  const cell = (value) => h("td", { class: isNumber(value) && "number" }, !isEmpty(value) && show(value));
  const fill = (sorted) => {
    body.replaceChildren();
    const line = (row) => h("tr", columns.map((_, at) => cell(row[at])));
    appendPaged(body, sorted, line, (button) => h("tr", h("td", { colspan: columns.length }, button)));
  };
  const headings = columns.map((name, at) => {
    const onclick = () => {
      const down = heading.ariaSort === "ascending";
      for (const other of headings) other.ariaSort = null;
      heading.ariaSort = down ? "descending" : "ascending";
      fill(sortedBy(rows, at, down ? -1 : 1));
    };
    const heading = h("th", { scope: "col" }, h("button", { onclick }, name));
    return heading;
  });
  fill(rows);
  return h("div.scroll", { tabindex: 0, role: "group", "aria-label": "Table" }, h("table", h("thead", h("tr", headings)), body));
}

const isEmpty = (value) => value === undefined || value === null || value === "";

function isNumber(value) {
  if (typeof value !== "string") return typeof value === "number";
  return value.length < 40 && value.trim() !== "" && Number.isFinite(Number(value));
}

const collator = new Intl.Collator(undefined, { numeric: true });

/** Returns the rows in the order of a column: numbers, then text; rows without a value are always last. */
function sortedBy(rows, at, sign) {
  const key = (value) => {
    if (isEmpty(value)) return [2];
    return isNumber(value) ? [0, Number(value)] : [1, isObject(value) ? JSON.stringify(value) : String(value)];
  };
  return rows
    .map((row) => ({ row, key: key(row[at]) }))
    .sort(({ key: [a, x] }, { key: [b, y] }) => (a === 2 || b === 2 ? a - b : sign * (a - b || (a ? collator.compare(x, y) : x - y))))
    .map(({ row }) => row);
}

/** Returns the rows of a text of separated values; a quoted value may contain separators and lines. */
function separatedRows(text, separator) {
  const value = new RegExp(`(?:"([^"]*(?:""[^"]*)*)(?:"|$))?([^${separator}\n]*)(${separator}|\n|$)`, "y");
  const rows = [];
  let row = [];
  let end = "";
  while (value.lastIndex < text.length || end === separator) {
    const [, quoted = "", rest, found] = value.exec(text);
    row.push(quoted.replaceAll('""', '"') + rest.replace(/\r$/, ""));
    end = found;
    if (end === separator) continue;
    rows.push(row);
    row = [];
  }
  return rows;
}
