// Client of the admin API, which has the same origin as this page.

import { author, token } from './caller.js';
import { adjustClock } from './format.js';

// Longer than the server's own time limits of reads and of changes.
const READ_TIMEOUT_MS = 15_000;
const CHANGE_TIMEOUT_MS = 40_000;

/** An error response of the API. */
export class Refused extends Error {
  constructor(status, error) {
    super(error.message ?? `unexpected status ${status}`);
    this.status = status;
    this.code = error.code ?? 'unknown';
    this.details = error;
  }
}

/** No response, or one that is not from the API. */
export class Unreachable extends Error {}

/** The request timed out; the instance may respond to others. */
export class TimedOut extends Unreachable {}

/** Sends a request and returns the response's JSON. A signal may abort it. */
export async function call(method, path, body, signal) {
  const response = await send(method, path, body, signal);
  adjustClock(response.headers.get('date'));
  if (response.status === 204) return null;
  const answer = await response.json().catch(() => null);
  if (response.ok && answer !== null) return answer;
  const error = answer?.error;
  if (response.status === 401) throw new Refused(401, error ?? { code: 'unauthorized', message: 'a token is required' });
  if (error && typeof error === 'object') throw new Refused(response.status, error);
  if (response.status >= 500 || response.ok) throw new Unreachable(`unexpected status ${response.status}`);
  throw new Refused(response.status, { message: `unexpected status ${response.status}` });
}

async function send(method, path, body, signal) {
  const length = method === 'GET' ? READ_TIMEOUT_MS : CHANGE_TIMEOUT_MS;
  const deadline = AbortSignal.timeout(length);
  const headers = {};
  if (token.get()) headers.authorization = `Bearer ${token.get()}`;
  if (author.get()) headers['tollgate-author'] = author.header();
  // Changes have this type even without a body: pages of other origins cannot send it.
  if (method !== 'GET') headers['content-type'] = 'application/json';
  try {
    return await fetch(`api/v1/${path}`, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: signal ? AbortSignal.any([signal, deadline]) : deadline,
      cache: 'no-store',
      credentials: 'omit',
      redirect: 'error',
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw error.name === 'TimeoutError' ? new TimedOut(`no response within ${length / 1000} s`) : new Unreachable('no connection');
  }
}

/** A path with query parameters; undefined and null ones are omitted. */
export function query(path, parameters) {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined && value !== null);
  return given.length === 0 ? path : `${path}?${new URLSearchParams(given)}`;
}
