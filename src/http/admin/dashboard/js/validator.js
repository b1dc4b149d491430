// Asks what is wrong with files while they are typed: a moment after the last key, and only the newest answer counts.

import { call } from './api.js';
import { Cell } from './cell.js';

const PAUSE_MS = 250;

/** Gives a `result` cell, `{state: 'checking' | 'checked' | 'failed', answer, message}`, and `check(files)`. */
export function validator() {
  const result = new Cell(null);
  let timer = null;
  let underway = new AbortController();

  function check(files) {
    clearTimeout(timer);
    underway.abort();
    underway = new AbortController();
    const { signal } = underway;
    // What was wrong stays to be seen; what an apply would have to confirm was said of other files.
    const last = result.get()?.answer;
    result.set({ state: 'checking', answer: last && { ...last, reasons: [] } });
    timer = setTimeout(() => ask(files, signal), PAUSE_MS);
  }

  async function ask(files, signal) {
    try {
      const answer = await call('POST', 'validate', { files }, signal);
      if (!signal.aborted) result.set({ state: 'checked', answer });
    } catch (error) {
      if (!signal.aborted) result.set({ state: 'failed', message: error.message });
    }
  }

  return { result, check, stop: () => { clearTimeout(timer); underway.abort(); } };
}
