// Times: relative, with the exact time as a title, and kept current. Times are milliseconds since 1970, or ISO 8601.

import { h } from "./dom.js";

const UNITS = /** @type {[string, number][]} */ ([["d", 86_400_000], ["h", 3_600_000], ["m", 60_000], ["s", 1000]]);

/** Returns a duration in milliseconds as text: `340 ms`, `4.2 s`, `3 m 20 s`, `2 d 4 h`. */
export function duration(ms) {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)} s`;
  const [unit, next] = UNITS.slice(UNITS.findIndex(([, size]) => ms >= size));
  const rest = next ? Math.floor((ms % unit[1]) / next[1]) : 0;
  return `${Math.floor(ms / unit[1])} ${unit[0]}${rest ? ` ${rest} ${next[0]}` : ""}`;
}

/** Returns a duration with one unit: `4 s`, `3 m`, `2 d`. */
function roughly(ms) {
  const [unit, size] = UNITS.find(([, each]) => ms >= each) ?? UNITS[3];
  return `${Math.floor(ms / size)} ${unit}`;
}

/** Returns the exact time in the person's own zone. */
export const exactly = (at) => new Date(at).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });

const shown = new Map();

const clock = (words) => (at) => {
  const when = new Date(at);
  const text = () => words(Date.now() - when.getTime());
  const node = h("time", { datetime: when.toISOString(), title: exactly(when) }, text());
  shown.set(node, text);
  return node;
};

/** Returns a node that says how long ago a time was: `3 m ago`. */
export const ago = clock((ms) => (ms < 5000 ? "now" : `${roughly(ms)} ago`));

/** Returns a node that says how old something is: `3 m`. */
export const age = clock((ms) => roughly(Math.max(0, ms)));

/** Returns a node that says how much time is left: `2 h left`, or `overdue`. */
export const left = clock((ms) => (ms < 0 ? `${roughly(-ms)} left` : "overdue"));

setInterval(() => {
  for (const [node, text] of shown) {
    if (!node.isConnected) shown.delete(node);
    else if (node.textContent !== text()) node.textContent = text();
  }
}, 1000);
