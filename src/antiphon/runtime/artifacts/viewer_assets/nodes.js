// Makes nodes, as the console's script for nodes does. Text from an artifact becomes text nodes only, never markup.

/**
 * Returns an element: `h("a.row", {href, onclick}, "text", node)`. Classes may be in the tag, the properties may be left
 * out. Properties and children that are `null`, `undefined` or `false` are left out. A button does not submit.
 */
function h(tag, ...children) {
  const [name, ...classes] = tag.split(".");
  const element = document.createElement(name);
  const properties = children[0]?.constructor === Object ? children.shift() : {};
  if (name === "button") element.type = "button";
  for (const child of children.flat(Infinity)) if (child || child === 0) element.append(child);
  for (const [key, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  if (classes.length) element.classList.add(...classes);
  return element;
}
