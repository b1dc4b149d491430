// Light or dark theme: the system's, until the user chooses one.

import { h } from './dom.js';

const NAME = 'tollgate.theme';
const system = matchMedia('(prefers-color-scheme: dark)');
const current = () => document.documentElement.dataset.theme ?? (system.matches ? 'dark' : 'light');
const other = () => (current() === 'dark' ? 'light' : 'dark');

/** Button that toggles the theme. */
export function themeButton() {
  const label = () => [other() === 'dark' ? 'Dark' : 'Light', h('span', { class: 'unseen' }, ' theme')];
  const button = h('button', { type: 'button', class: 'small', on: { click: change } }, label());
  const relabel = () => button.replaceChildren(...label());
  system.addEventListener('change', relabel);
  function change() {
    const next = other();
    document.documentElement.dataset.theme = next;
    localStorage.setItem(NAME, next);
    relabel();
  }
  return button;
}
