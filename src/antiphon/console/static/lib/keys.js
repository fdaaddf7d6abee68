// Keyboard shortcuts. Those of a page end with the page; the help lists all that are active.

/** @typedef {{key: string, label: string, run: (event: KeyboardEvent) => void}} Shortcut */

/** @type {Shortcut[]} */
let active = [];

/** Adds shortcuts, and returns a function that removes them. Later ones win. @param {Shortcut[]} shortcuts */
export function addShortcuts(shortcuts) {
  active.unshift(...shortcuts);
  return () => {
    active = active.filter((each) => !shortcuts.includes(each));
  };
}

/** Returns the shortcuts that are active, each key once. */
export const shortcuts = () => active.filter(({ key }, at) => active.findIndex((other) => other.key === key) === at);

const TYPING = "input:not([type=checkbox], [type=radio]), textarea, select";

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || document.querySelector("dialog[open]")) return;
  if (/** @type {Element} */ (event.target).matches(TYPING) && event.key !== "Escape") return;
  const found = active.find(({ key }) => key === event.key);
  if (!found) return;
  event.preventDefault();
  found.run(event);
});

/** Moves the focus by some items of a list. */
function moveFocus(list, selector, step) {
  const items = [...list.querySelectorAll(selector)];
  const at = items.findIndex((each) => each.contains(document.activeElement));
  const to = at < 0 ? (step > 0 ? 0 : items.length - 1) : Math.min(items.length - 1, Math.max(0, at + step));
  items[to]?.focus();
  items[to]?.scrollIntoView({ block: "nearest" });
}

/** Returns the shortcuts that move through a list: j, k and the arrows. @returns {Shortcut[]} */
export const listShortcuts = (list, selector) =>
  [["j", "Next", 1], ["k", "Previous", -1], ["ArrowDown", "Next", 1], ["ArrowUp", "Previous", -1]].map(
    ([key, label, step]) => /** @type {any} */ ({ key, label, run: () => moveFocus(list(), selector, step) }),
  );
