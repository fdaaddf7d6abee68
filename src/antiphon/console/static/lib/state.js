// Values that pages listen to.

/** Returns a value that can be read, replaced and listened to. `listen` calls a function now and after each change, and
 * returns a function that ends this. @template T @param {T} value */
export function signal(value) {
  const listeners = new Set();
  return {
    get: () => value,
    /** @param {T} next */
    set(next) {
      if (Object.is(next, value)) return;
      value = next;
      for (const listener of [...listeners]) listener(value);
    },
    /** @param {(value: T) => void} listener */
    listen(listener) {
      listeners.add(listener);
      listener(value);
      return () => void listeners.delete(listener);
    },
  };
}
