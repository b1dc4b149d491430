// Components of all views.

import { h, redraw, unique } from './dom.js';
import { now, until } from './format.js';
import { say } from './messages.js';
import { data, trouble } from './poll.js';
import { WHY_NOT, mayWrite } from './session.js';

/** A state, as a sign, a word and a colour: `ok`, `warn`, `bad`, `accent` or none. */
export const badge = (word, kind = '') => h('span', { class: `badge ${kind}` }, word);

export const button = (label, press, kind = '', props = {}) =>
  h('button', { type: 'button', class: kind, on: { click: press }, ...props }, label);

/**
 * A button that changes something. For viewers it is focusable but disabled, and explains why;
 * `describe` is its object, for screen readers.
 */
export function writeButton(label, press, kind = '', describe = '') {
  const name = describe ? [label, h('span', { class: 'unseen' }, ` ${describe}`)] : label;
  const made = button(name, (event) => (mayWrite() ? press(event) : say(WHY_NOT, 'bad')), kind, { data: { writes: '' } });
  permit(made);
  return made;
}

function permit(made) {
  const isViewer = mayWrite() === false;
  busy(made, isViewer);
  made.title = isViewer ? WHY_NOT : '';
}

data.me.subscribe(() => document.querySelectorAll('[data-writes]').forEach(permit));

/** Disables a button, such as while its action runs, without taking the focus from it. */
export function busy(node, is) {
  if (is) node.setAttribute('aria-disabled', 'true');
  else node.removeAttribute('aria-disabled');
}

/** The head of a view: title, description and actions. */
export function head(title, about, ...tools) {
  const heading = h('h1', { tabindex: '-1' }, title);
  return h('div', { class: 'head' }, h('div', {}, heading, about && h('p', {}, about)), h('div', { class: 'row' }, tools));
}

export function panel(title, note, ...inside) {
  const heading = h('h2', { id: unique('panel') }, title);
  const top = h('header', {}, heading, note && h('p', {}, note));
  return h('section', { class: 'panel', 'aria-labelledby': heading.id }, top, inside);
}

/** A field with its label, and a hint for screen readers too. */
export function field(label, input, hint = '') {
  input.id ||= unique('field');
  const below = hint && h('p', { class: 'hint', id: `${input.id}-hint` }, hint);
  if (below) input.setAttribute('aria-describedby', below.id);
  return h('div', { class: 'field' }, h('label', { for: input.id }, label), input, below);
}

/** A select element; options are `[value, label]`. */
export const select = (options, chosen, props = {}) =>
  h('select', { ...props, value: chosen }, options.map(([value, label]) => h('option', { value }, label)));

export const TIMES = [['900', '15 minutes'], ['3600', '1 hour'], ['21600', '6 hours'], ['86400', '1 day'], ['604800', '7 days']];
const LIFETIMES = [...TIMES, ['', 'Until removed']];

/** A lifetime field; `seconds()` returns undefined for an unlimited one. That of a record that exists may stay. */
export function lifetime(record) {
  const end = record?.expires_at_ms;
  const node = select(record ? [['same', end ? `Unchanged: ${until(end)}` : 'Unchanged: until removed'], ...LIFETIMES] : LIFETIMES,
    record ? 'same' : '3600');
  const given = () => (end ? Math.max(1, Math.round((end - now()) / 1000)) : undefined);
  return { node, seconds: () => (node.value === 'same' ? given() : node.value === '' ? undefined : Number(node.value)) };
}

export const notice = (kind, ...inside) => h('div', { class: `notice ${kind}` }, inside);

/** Notices for resources that fail to load. Returns the node and a function that unsubscribes. */
export function troubles(...names) {
  const node = h('div', { class: 'stack', hidden: true });
  const update = () => {
    const messages = [...new Set(names.map((name) => trouble[name].get()).filter((message) => message))];
    node.hidden = messages.length === 0;
    redraw(node, messages.join('\n'), () => messages.map((message) => notice('warn', h('p', {}, message))));
  };
  const ends = names.map((name) => trouble[name].subscribe(update));
  return { node, stop: () => ends.forEach((end) => end()) };
}

/** Explains to viewers why changes are disabled. */
export function viewerNotice() {
  const node = notice('', h('p', {}, WHY_NOT));
  const stop = data.me.subscribe(() => (node.hidden = mayWrite() !== false));
  node.hidden = mayWrite() !== false;
  return { node, stop };
}
