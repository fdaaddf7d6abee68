// Talks JSON-RPC with the host, by messages to the parent window.
// https://github.com/modelcontextprotocol/ext-apps/blob/main/specification/2026-01-26/apps.mdx

const PROTOCOL = "2026-01-26";
const REQUEST_TIMEOUT_MS = 60_000;
const METHOD_NOT_FOUND = -32601;

class Bridge {
  #open = new Map();
  #lastId = 0;
  #handlers;

  /** @param {Record<string, (params: any) => void>} handlers what to do with notifications, by method */
  constructor(handlers) {
    this.#handlers = handlers;
    window.addEventListener("message", (event) => {
      if (event.source === window.parent) this.#take(event.data);
    });
  }

  /** Sends a request, and returns the host's result. */
  request(method, params) {
    const id = ++this.#lastId;
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#open.delete(id);
        reject(new Error(`The host did not answer ${method}.`));
      }, REQUEST_TIMEOUT_MS);
      this.#open.set(id, { resolve, reject, timer });
      this.#send({ id, method, params });
    });
  }

  notify(method, params) {
    this.#send({ method, params });
  }

  #send(message) {
    window.parent.postMessage({ jsonrpc: "2.0", ...message }, "*");
  }

  #take(message) {
    if (message?.jsonrpc !== "2.0") return;
    if (typeof message.method !== "string") return this.#settle(message);
    if (message.id === undefined) return this.#handlers[message.method]?.(message.params ?? {});
    // The host asks only whether this page still responds, and that it ends.
    if (message.method === "ping" || message.method === "ui/resource-teardown") {
      this.#send({ id: message.id, result: {} });
    } else {
      const error = { code: METHOD_NOT_FOUND, message: `This App has no method ${message.method}.` };
      this.#send({ id: message.id, error });
    }
  }

  #settle(message) {
    const waiting = this.#open.get(message.id);
    if (!waiting) return;
    this.#open.delete(message.id);
    clearTimeout(waiting.timer);
    if (message.error) waiting.reject(new Error(String(message.error.message)));
    else waiting.resolve(message.result ?? {});
  }
}
