// Form for an entry of the allow or deny list.

import { call } from '../api.js';
import { button, field, lifetime, select } from '../controls.js';
import { writeListed } from '../descriptor.js';
import { openDialog } from '../dialog.js';
import { h, text, unique } from '../dom.js';
import { say } from '../messages.js';
import { data, refresh } from '../poll.js';
import { forceGate } from './force.js';

const LISTS = [['deny', 'Deny'], ['allow', 'Allow']];
const MATCHES = [['exact', 'exactly'], ['pattern', 'pattern']];
const NO_PAIR = { key: '', value: '', match: 'pattern' };

/** Opens the form; `given` has initial values. Those that stay as they are get sent as they are, whatever fields make of them. */
export function listDialog(given = {}) {
  const list = select(LISTS, given.list ?? 'deny');
  const names = [...new Set((data.rules.get()?.rules ?? []).map((rule) => rule.domain))];
  const options = h('datalist', { id: unique('domains') }, ['*', ...names].map((name) => h('option', { value: name })));
  const domain = h('input', { type: 'text', required: true, list: options.id, value: given.domain ?? names[0] ?? '' });
  const pairs = pairFields(given.descriptor ?? [NO_PAIR]);
  const readDomain = keeping(domain, given.domain ?? '', (written) => written.trim());
  const reason = h('input', { type: 'text', required: true, maxlength: 500, value: given.reason ?? '' });
  const life = lifetime('3600');
  const gate = forceGate();
  let attempted = '';
  const dialog = openDialog({
    title: given.descriptor ? 'Deny a key' : 'Add to a list',
    wide: true,
    content: [
      gate.node,
      h('div', { class: 'two' }, field('List', list, 'Denied requests are over the limit. Allowed requests pass and are not counted.'), field('Domain', domain, '* matches every domain'), options),
      pairs.node,
      h('div', { class: 'two' }, field('Reason', reason, 'Shown in the list and in the audit log.'), field('For', life.node)),
    ],
    label: given.list === 'deny' ? 'Deny' : 'Add',
    danger: given.list === 'deny',
    submit: async () => {
      const what = { list: list.value, domain: readDomain(), descriptor: pairs.read() };
      // A confirmation is for one entry only.
      if (attempted !== JSON.stringify(what)) gate.reset();
      attempted = JSON.stringify(what);
      const entry = { ...what, reason: reason.value.trim(), expires_in_s: life.seconds() };
      await gate.send((isForced) => call('POST', 'lists', { ...entry, force: isForced || undefined }));
      say(`${writeListed(entry.descriptor)} is on the ${entry.list} list of ${entry.domain === '*' ? 'every domain' : entry.domain}.`);
      refresh('lists', 'audit');
      return true;
    },
  });
  if (given.list) {
    list.addEventListener('change', () => {
      const [, verb] = LISTS.find(([name]) => name === list.value);
      text(dialog.heading, `${verb} a key`);
      text(dialog.send, verb);
      dialog.send.className = list.value === 'deny' ? 'danger' : 'primary';
    });
  }
  (given.descriptor ? reason : pairs.first()).focus();
  return dialog;
}

/**
 * A function that reads a field: what it was given while it shows that unchanged, else its text. Fields drop line breaks.
 */
function keeping(input, given, edited = (written) => written) {
  const shown = input.value;
  return () => (given !== '' && input.value === shown ? given : edited(input.value));
}

/** Rows of a key, a value, and the meaning of the value. */
function pairFields(given) {
  const rows = h('div', { class: 'pairs' });
  const readers = new Map();
  const add = ({ key, value, match }) => {
    const keyInput = h('input', { type: 'text', required: true, value: key, placeholder: 'api_key', 'aria-label': 'Key' });
    const matchInput = select(MATCHES, match, { 'aria-label': 'Match' });
    const valueInput = h('input', { type: 'text', value, placeholder: 'abc, bot-* or 10.0.0.0/8', 'aria-label': 'Value or pattern' });
    const row = h('div', { class: 'pair' }, keyInput, matchInput, valueInput, button('Remove', () => drop(row), 'quiet'));
    const [readKey, readValue] = [keeping(keyInput, key, (written) => written.trim()), keeping(valueInput, value)];
    readers.set(row, () => ({ key: readKey(), value: readValue(), match: matchInput.value }));
    rows.append(row);
    return keyInput;
  };
  const drop = (row) => {
    if (rows.childElementCount > 1) row.remove();
    rows.querySelector('input').focus();
  };
  given.forEach(add);
  const more = button('Add another key', () => add(NO_PAIR).focus(), 'quiet');
  const node = h('fieldset', { class: 'stack' }, h('legend', { class: 'label' }, 'Matches requests with'), rows,
    h('div', { class: 'row' }, more),
    h('p', { class: 'hint' }, 'All of these keys must be in one descriptor. An exact value is compared character by character; '
      + 'in a pattern, * stands for any text, and a CIDR range for its addresses.'));
  return { node, read: () => [...rows.children].map((row) => readers.get(row)()), first: () => rows.querySelector('input') };
}
