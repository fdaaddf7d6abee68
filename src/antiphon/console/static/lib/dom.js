// Makes nodes. Text becomes text nodes only, never markup.

/** @typedef {Node | string | number | null | undefined | false | Child[]} Child */

const PROPERTIES = new Set(["value", "checked"]);

/**
 * Returns an element: `h("a.row", {href, onclick, dataset}, "text", node)`. Classes may be in the tag, the properties may
 * be left out. An attribute that is `null`, `undefined` or `false` is left out. A button does not submit by default.
 * @returns {any}
 */
export const h = (tag, ...rest) => build((name) => document.createElement(name), tag, rest);

/** Returns an element of SVG. @returns {any} */
export const svg = (tag, ...rest) => build((name) => document.createElementNS("http://www.w3.org/2000/svg", name), tag, rest);

/** Replaces the children of a node, and returns the node. @template {Element} T @param {T} node @param {...Child} children */
export function replace(node, ...children) {
  node.replaceChildren();
  append(node, children);
  return node;
}

/** Replaces the children of a node. The focus stays at the same button of the node. */
export function redraw(node, ...children) {
  const buttons = () => [...node.querySelectorAll("button")];
  const at = buttons().indexOf(document.activeElement);
  replace(node, ...children);
  buttons()[at]?.focus();
}

function build(make, tag, given) {
  const [name, ...classes] = tag.split(".");
  const node = make(name);
  const props = given[0]?.constructor === Object ? given.shift() : {};
  // The children come before the properties: the value of a select needs its options.
  append(node, given);
  if (name === "button") node.type = "button";
  for (const [key, value] of Object.entries(props)) {
    if ((value ?? false) === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "dataset") Object.assign(node.dataset, value);
    else if (PROPERTIES.has(key)) node[key] = value;
    else node.setAttribute(key, value === true ? "" : value);
  }
  if (classes.length) node.classList.add(...classes);
  return node;
}

function append(node, children) {
  for (const child of children.flat(Infinity)) {
    if (child || child === 0) node.append(child);
  }
}

const isWeb = (url) => /^https?:\/\//i.test(url);

/** Opens an address of the web in a new tab. */
export const openExternal = (url) => isWeb(url) && window.open(url, "_blank", "noopener,noreferrer");

/** Returns a link to an address of the web, or text if the address is of another kind. @param {...Child} label */
export function externalLink(url, ...label) {
  const props = isWeb(url) ? { href: url, target: "_blank", rel: "noopener noreferrer" } : {};
  return h(isWeb(url) ? "a" : "span", { ...props, title: url }, label.length ? label : url);
}
