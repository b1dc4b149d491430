// Calls of the admin API, which stands beside this page.

import { author } from './author.js';
import { learn } from './time.js';
import { token } from './token.js';

// Longer than the instance works on a question, and on a change.
const READ_PATIENCE_MS = 15_000;
const CHANGE_PATIENCE_MS = 40_000;

/** What the API refused, and why. */
export class Refused extends Error {
  constructor(status, error) {
    super(error.message ?? `the answer is ${status}`);
    this.status = status;
    this.code = error.code ?? 'unknown';
    this.details = error;
  }
}

/** No answer came, or one that is not the API's. */
export class Away extends Error {}

/** The instance took too long with this; it may answer others. */
export class Late extends Away {}

/** Sends a call and gives what it answers. A signal may give it up. */
export async function call(method, path, body, signal) {
  const response = await send(method, path, body, signal);
  learn(response.headers.get('date'));
  if (response.status === 204) return null;
  const answer = await response.json().catch(() => null);
  if (response.ok && answer !== null) return answer;
  const error = answer?.error;
  if (response.status === 401) throw new Refused(401, error ?? { code: 'unauthorized', message: 'a token is needed' });
  if (error && typeof error === 'object') throw new Refused(response.status, error);
  if (response.status >= 500 || response.ok) throw new Away(`the answer is ${response.status}`);
  throw new Refused(response.status, { message: `the answer is ${response.status}` });
}

async function send(method, path, body, signal) {
  const length = method === 'GET' ? READ_PATIENCE_MS : CHANGE_PATIENCE_MS;
  const patience = AbortSignal.timeout(length);
  const headers = {};
  if (token.get()) headers.authorization = `Bearer ${token.get()}`;
  if (author.get()) headers['tollgate-author'] = author.header();
  // What changes something says that it is JSON also where it has no body: no page from elsewhere can say that.
  if (method !== 'GET') headers['content-type'] = 'application/json';
  try {
    return await fetch(`api/v1/${path}`, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: signal ? AbortSignal.any([signal, patience]) : patience,
      cache: 'no-store',
      credentials: 'omit',
      redirect: 'error',
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw error.name === 'TimeoutError' ? new Late(`no answer in ${length / 1000} s`) : new Away('no connection');
  }
}

/** A path with parameters; those that are not there are left out. */
export function query(path, parameters) {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined && value !== null);
  return given.length === 0 ? path : `${path}?${new URLSearchParams(given)}`;
}
