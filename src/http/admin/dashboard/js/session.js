// Who looks, and whether they may change anything.

import { Refused, call } from './api.js';
import { data, forget, isTokenWanted, turn } from './poll.js';
import { token } from './token.js';

/** Whether the one who looks may change anything; undefined before the API has told. */
export const mayWrite = () => data.me.get() && data.me.get().role === 'operator';

/** Why not, for people. */
export const WHY_NOT = 'Your token has the role viewer. Changes need a token with the role operator.';

/** Tries a token. Gives the name of its owner, or throws why it is not taken. */
export async function signIn(value) {
  const before = token.get();
  token.set(value);
  try {
    const me = await call('GET', 'me');
    forget();
    isTokenWanted.set(false);
    data.me.set(me);
    turn();
    return me.name;
  } catch (error) {
    if (before) token.set(before);
    else token.forget();
    throw error instanceof Refused && error.status === 401 ? new Error('This token is not known here.') : error;
  }
}

export function signOut() {
  token.forget();
  forget();
  isTokenWanted.set(true);
}
