// A value with subscribers.

export class Observable {
  #value;
  #subscribers = new Set();

  constructor(value) {
    this.#value = value;
  }

  get() {
    return this.#value;
  }

  set(value) {
    this.#value = value;
    for (const notify of [...this.#subscribers]) notify(value);
  }

  /** Calls back with the value, if there is one, and with every later one. Returns a function that unsubscribes. */
  subscribe(notify) {
    this.#subscribers.add(notify);
    if (this.#value !== undefined) notify(this.#value);
    return () => this.#subscribers.delete(notify);
  }
}

/** Combines several functions that unsubscribe. */
export const all = (...ends) => () => ends.forEach((end) => end());
