// A value, and who wants to know when it changes.

export class Cell {
  #value;
  #heard = new Set();

  constructor(value) {
    this.#value = value;
  }

  get() {
    return this.#value;
  }

  set(value) {
    this.#value = value;
    for (const hear of [...this.#heard]) hear(value);
  }

  /** Tells of the value now, if there is one, and of every later one. Gives what ends it. */
  subscribe(hear) {
    this.#heard.add(hear);
    if (this.#value !== undefined) hear(this.#value);
    return () => this.#heard.delete(hear);
  }
}

/** What ends all of these. */
export const all = (...ends) => () => ends.forEach((end) => end());
