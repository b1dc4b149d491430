// Validates files while they are edited: shortly after the last key, and only the newest response counts.

import { call } from './api.js';
import { Observable } from './observable.js';

const DEBOUNCE_MS = 250;

/** Returns an observable `result`, `{state: 'checking' | 'checked' | 'failed', answer, message}`, and `check(files)`. */
export function validator() {
  const result = new Observable(null);
  let timer = null;
  let inFlight = new AbortController();

  function check(files) {
    clearTimeout(timer);
    inFlight.abort();
    inFlight = new AbortController();
    const { signal } = inFlight;
    // Problems stay visible while checking; guardrails that an apply must confirm are dropped, as they are of other files.
    const last = result.get()?.answer;
    result.set({ state: 'checking', answer: last && { ...last, reasons: [] } });
    timer = setTimeout(() => validate(files, signal), DEBOUNCE_MS);
  }

  async function validate(files, signal) {
    try {
      const answer = await call('POST', 'validate', { files }, signal);
      if (!signal.aborted) result.set({ state: 'checked', answer });
    } catch (error) {
      if (!signal.aborted) result.set({ state: 'failed', message: error.message });
    }
  }

  return { result, check, stop: () => { clearTimeout(timer); inFlight.abort(); } };
}
