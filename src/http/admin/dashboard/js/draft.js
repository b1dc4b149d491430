// The files as somebody edits them. They stay until they are applied or discarded, also when the page is loaded again.

import { call } from './api.js';
import { Cell } from './cell.js';

const NAME = 'tollgate.draft';

class Draft {
  /** Counts up with every change. */
  changed = new Cell(0);
  /** The version that is edited; null when the rules have none, undefined before they are known. */
  base;
  /** Its files, as they were. */
  origin = {};
  /** The files as they are to be. */
  files = {};
  /** Why, as far as it was said. */
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

  /** Every file, those that are to go included. */
  names() {
    return [...new Set([...Object.keys(this.origin), ...Object.keys(this.files)])].sort();
  }

  /** Takes the files that are current, unless there is an edit already. */
  async load() {
    if (this.isChanged()) return;
    const { version, files } = await call('GET', 'versions/current');
    if (!this.isChanged()) this.restart(version?.number ?? null, files);
  }

  edit(name, text) {
    this.files = { ...this.files, [name]: text };
    this.#tell();
  }

  remove(name) {
    const { [name]: _, ...rest } = this.files;
    this.files = rest;
    this.#tell();
  }

  /** Puts one file, or all of them, back to what they were. */
  discard(name) {
    if (name === undefined) this.files = { ...this.origin };
    else if (name in this.origin) this.files = { ...this.files, [name]: this.origin[name] };
    else return this.remove(name);
    this.#tell();
  }

  /** Starts from other files, with an edit of them if there is one. */
  restart(base, origin, files = origin) {
    Object.assign(this, { base, origin: { ...origin }, files: { ...files } });
    this.#tell();
  }

  #tell() {
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
    // More than the browser keeps: it is there until the page is left.
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
