// The caller and its permissions.

import { Refused, call } from './api.js';
import { token } from './caller.js';
import { data, forget, isTokenRequired, poll } from './poll.js';

/** Whether the caller may make changes; undefined before the API has responded. */
export const mayWrite = () => data.me.get() && data.me.get().role === 'operator';

/** The reason for viewers. */
export const WHY_NOT = 'Your token has the role viewer. Changes require the role operator.';

/** Signs in with a token. Returns the name of its owner, or throws. */
export async function signIn(value) {
  const before = token.get();
  token.set(value);
  try {
    const me = await call('GET', 'me');
    forget();
    isTokenRequired.set(false);
    data.me.set(me);
    poll();
    return me.name;
  } catch (error) {
    if (before) token.set(before);
    else token.forget();
    throw error instanceof Refused && error.status === 401 ? new Error('Unknown token.') : error;
  }
}

export function signOut() {
  token.forget();
  forget();
  isTokenRequired.set(true);
}
