// Talks to the API of the console. Addresses are relative to the base of the page.

/** Returns the error for an answer that is not a success. `fields` has a message for each field that is wrong. */
const failure = (status, message, fields = {}) => Object.assign(new Error(message), { status, fields });

/** Fires `signed-out`, `online` and `offline`. */
export const connection = new EventTarget();
let isOnline = true;

function note(now) {
  if (now !== isOnline) connection.dispatchEvent(new Event(now ? "online" : "offline"));
  isOnline = now;
}

/** Returns the address of a path such as `/api/session`. Parameters without a value are left out. */
export function address(path, query = {}) {
  const url = new URL(path.replace(/^\//, ""), document.baseURI);
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") url.searchParams.set(name, value);
  }
  return url.href;
}

/** @returns {Promise<any>} */
export const get = (path, query = {}) => request(address(path, query));

/** @returns {Promise<any>} */
export const post = (path, body = {}) => request(address(path), { method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json" } });

/** @param {RequestInit} [options] */
async function request(url, options) {
  let response;
  try {
    response = await fetch(url, options);
  } catch {
    note(false);
    throw failure(0, "The console does not respond. Check that its process runs.");
  }
  note(true);
  const value = await response.json().catch(() => null);
  if (response.ok) return value;
  if (response.status === 401) connection.dispatchEvent(new Event("signed-out"));
  throw failure(response.status, value?.message ?? `The console answered with status ${response.status}.`, value?.fields);
}

/**
 * Listens to a stream of events while the page is visible, and returns a function that ends it: a browser has few
 * connections for all its tabs. `handlers` take the data of each event by name; `problem` takes `{status, message}` of a
 * stream that failed. The browser repeats a connection that breaks. `query` returns the parameters of each connection.
 */
export function stream(path, handlers, query = () => ({})) {
  let source = /** @type {any} */ (null);
  const close = () => (source = source?.close());
  const stop = () => {
    document.removeEventListener("visibilitychange", follow);
    close();
  };
  const fail = (problem) => {
    stop();
    handlers.problem?.(problem);
  };
  const follow = () => {
    if (document.hidden) return close();
    if (source) return;
    source = new EventSource(address(path, query()));
    for (const [name, handle] of Object.entries({ ...handlers, problem: fail })) {
      source.addEventListener(name, (event) => handle(JSON.parse(event.data)));
    }
    source.addEventListener("open", () => note(true));
    source.addEventListener("error", () => source?.readyState === EventSource.CLOSED && fail({ status: 0, message: "The stream was refused." }));
  };
  document.addEventListener("visibilitychange", follow);
  follow();
  return stop;
}
