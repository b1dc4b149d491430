// Short messages about what has just been done; they are read out and go away.

import { h } from './dom.js';

const STAY_MS = 8000;

/** Says what was done, or why it was not when `kind` is `bad`. */
export function say(message, kind = 'ok') {
  const gone = () => box.remove();
  const close = h('button', { type: 'button', class: 'quiet small', on: { click: gone } }, 'Dismiss');
  const box = h('div', { class: `message ${kind}` }, h('p', {}, message), close);
  document.getElementById('messages').append(box);
  const leave = () => (box.matches(':hover, :focus-within') ? setTimeout(leave, STAY_MS) : gone());
  if (kind !== 'bad') setTimeout(leave, STAY_MS);
}
