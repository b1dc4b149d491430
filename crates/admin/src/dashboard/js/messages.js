// Short messages about completed or failed actions; screen readers announce them.

import { h } from './dom.js';

const VISIBLE_MS = 8000;

/** Shows a message; errors have the `kind` `bad` and stay until dismissed. */
export function say(message, kind = 'ok') {
  const remove = () => box.remove();
  const close = h('button', { type: 'button', class: 'quiet small', on: { click: remove } }, 'Dismiss');
  const box = h('div', { class: `message ${kind}` }, h('p', {}, message), close);
  document.getElementById('messages').append(box);
  const leave = () => (box.matches(':hover, :focus-within') ? setTimeout(leave, VISIBLE_MS) : remove());
  if (kind !== 'bad') setTimeout(leave, VISIBLE_MS);
}
