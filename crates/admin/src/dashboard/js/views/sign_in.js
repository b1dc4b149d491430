// Sign-in form.

import { busy, field, notice } from '../controls.js';
import { h, text } from '../dom.js';
import { signIn } from '../session.js';

export function signInForm() {
  const input = h('input', { type: 'password', name: 'token', autocomplete: 'current-password', required: true });
  const wrong = h('p', { class: 'bad', role: 'alert' });
  const send = h('button', { type: 'submit', class: 'primary' }, 'Sign in');
  const form = h('form', { class: 'panel sign-in', on: { submit: sent } },
    h('h1', { tabindex: '-1' }, 'Sign in'),
    notice('', h('p', {}, 'This instance requires a token.')),
    field('Token', input, 'Kept in this tab until it is closed.'), wrong, send);

  async function sent(event) {
    event.preventDefault();
    busy(send, true);
    text(wrong, '');
    try {
      await signIn(input.value.trim());
    } catch (error) {
      text(wrong, error.message);
      busy(send, false);
      input.focus();
    }
  }

  return { title: 'Sign in', node: form, stop: () => {}, ready: () => input.focus() };
}
