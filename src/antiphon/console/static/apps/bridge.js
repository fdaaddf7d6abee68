// Talks JSON-RPC with one App, by messages to the frame of its sandbox. Knows no page and no server.
// https://github.com/modelcontextprotocol/ext-apps/blob/main/specification/2026-01-26/apps.mdx

const MAX_OPEN = 16;
const MAX_MESSAGES_PER_SECOND = 100;

/** Returns the error of a request that the console refuses. The App reads the message. */
export const refusal = (message, code = -32000) => Object.assign(new Error(message), { code });

/**
 * Returns what sends messages to an App. `methods` are what the App may ask for, and tell.
 * @param {HTMLIFrameElement} frame
 * @param {string} origin the origin of the sandbox
 * @param {Record<string, (params: any) => any>} methods
 */
export function connect(frame, origin, methods) {
  const waiting = new Map();
  let lastId = 0;
  let open = 0;
  let second = 0;
  let messages = 0;

  const send = (message) => frame.contentWindow?.postMessage({ jsonrpc: "2.0", ...message }, origin);

  function take({ source, origin: from, data }) {
    // The App can reach this window too, but has neither the window nor the origin of the sandbox.
    if (source !== frame.contentWindow || from !== origin || data?.jsonrpc !== "2.0") return;
    if (typeof data.method === "string") answer(data.id, data.method, data.params ?? {});
    else settle(data.id, data.result, data.error);
  }

  async function answer(id, method, params) {
    open++;
    try {
      check(method);
      const result = await methods[method](params);
      if (id !== undefined) send({ id, result: result ?? {} });
    } catch (/** @type {any} */ { code = -32000, message }) {
      if (id !== undefined) send({ id, error: { code, message } });
    }
    open--;
  }

  function check(method) {
    const now = Math.floor(Date.now() / 1000);
    messages = now === second ? messages + 1 : 1;
    second = now;
    if (messages > MAX_MESSAGES_PER_SECOND) throw refusal("The App sends too many messages.");
    if (open > MAX_OPEN) throw refusal(`The App waits for ${MAX_OPEN} answers already.`);
    if (!Object.hasOwn(methods, method)) throw refusal(`The console has no method ${method.slice(0, 100)}.`, -32601);
  }

  function settle(id, result, error) {
    const { resolve, reject } = waiting.get(id) ?? {};
    waiting.delete(id);
    if (error) reject?.(new Error(error.message));
    else resolve?.(result);
  }

  window.addEventListener("message", take);
  return {
    notify: (method, params) => send({ method, params }),
    /** Sends a request, and returns the App's result. Without `seconds`, the App may take as long as it likes. */
    request(method, params, seconds = 0) {
      const id = ++lastId;
      send({ id, method, params });
      if (seconds) setTimeout(settle, seconds * 1000, id, null, { message: "The App did not answer." });
      return new Promise((resolve, reject) => waiting.set(id, { resolve, reject }));
    },
    close() {
      window.removeEventListener("message", take);
      for (const id of waiting.keys()) settle(id, null, { message: "The App is closed." });
    },
  };
}
