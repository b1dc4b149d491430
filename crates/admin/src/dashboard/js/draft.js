// The edited files. They are kept until applied or discarded, across page reloads.

import { call } from './api.js';
import { Observable } from './observable.js';

const NAME = 'tollgate.draft';

class Draft {
  /** Incremented by every change. */
  changed = new Observable(0);
  /** The version that is edited; null without versions, undefined before it is loaded. */
  base;
  /** The files of that version. */
  origin = {};
  /** The edited files. */
  files = {};
  /** The comment of the change. */
  comment = '';

  constructor() {
    const kept = read();
    if (kept) Object.assign(this, kept);
  }

  isLoaded() {
    return this.base !== undefined;
  }

  isChanged() {
    return this.names().some((name) => this.isFileChanged(name));
  }

  isFileChanged(name) {
    return this.files[name] !== this.origin[name];
  }

  /** Every file, deleted ones included. */
  names() {
    return [...new Set([...Object.keys(this.origin), ...Object.keys(this.files)])].sort();
  }

  /** Loads the current files, unless there is an edit already. */
  async load() {
    if (this.isChanged()) return;
    const { version, files } = await call('GET', 'versions/current');
    if (!this.isChanged()) this.restart(version?.number ?? null, files);
  }

  edit(name, text) {
    this.files = { ...this.files, [name]: text };
    this.#notify();
  }

  remove(name) {
    const { [name]: _, ...rest } = this.files;
    this.files = rest;
    this.#notify();
  }

  /** Restores one file, or all of them. */
  discard(name) {
    if (name === undefined) this.files = { ...this.origin };
    else if (name in this.origin) this.files = { ...this.files, [name]: this.origin[name] };
    else return this.remove(name);
    this.#notify();
  }

  /** Starts from other files, with an optional edit of them. */
  restart(base, origin, files = origin) {
    Object.assign(this, { base, origin: { ...origin }, files: { ...files } });
    this.#notify();
  }

  #notify() {
    keep(this);
    this.changed.set(this.changed.get() + 1);
  }
}

function keep(draft) {
  try {
    if (draft.isChanged()) {
      const { base, origin, files } = draft;
      sessionStorage.setItem(NAME, JSON.stringify({ base, origin, files }));
    } else {
      sessionStorage.removeItem(NAME);
    }
  } catch {
    // Too large for the session storage: kept until the page is left.
    sessionStorage.removeItem(NAME);
  }
}

function read() {
  try {
    return JSON.parse(sessionStorage.getItem(NAME));
  } catch {
    return null;
  }
}

export const draft = new Draft();
