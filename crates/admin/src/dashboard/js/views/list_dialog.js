// Form for an entry of the allow or deny list.

import { button, field, select } from '../controls.js';
import { writeListed } from '../descriptor.js';
import { h, text, unique } from '../dom.js';
import { data } from '../poll.js';
import { domainOf } from '../record.js';
import { recordDialog } from './record_dialog.js';

const LISTS = [['deny', 'Deny'], ['allow', 'Allow']];
const MATCHES = [['exact', 'exactly'], ['pattern', 'pattern']];
const NO_PAIR = { key: '', value: '', match: 'pattern' };

/**
 * Opens the form; `given` has initial values, of `record` if there is one, whose identity stays. Values that stay as they are
 * get sent as they are, whatever fields make of them.
 */
export function listDialog(given = {}, record = undefined) {
  const list = select(LISTS, given.list ?? 'deny', { on: { change: name } });
  const names = [...new Set((data.rules.get()?.rules ?? []).map((rule) => rule.domain))];
  const options = h('datalist', { id: unique('domains') }, ['*', ...names].map((name) => h('option', { value: name })));
  const domain = h('input', { type: 'text', required: true, list: options.id, value: given.domain ?? names[0] ?? '' });
  const pairs = pairFields(given.descriptor ?? [NO_PAIR]);
  const readDomain = keeping(domain, given.domain ?? '', (written) => written.trim());
  const dialog = recordDialog({
    title: 'Deny a key',
    wide: true,
    content: h('fieldset', { class: 'stack', disabled: Boolean(record) },
      h('div', { class: 'two' }, field('List', list, 'Denied requests are over the limit. Allowed requests pass and are not counted.'),
        field('Domain', domain, '* matches every domain'), options), pairs.node),
    label: 'Deny',
    record,
    reason: given.reason,
    stated: () => ({ kind: 'list_entry', list: list.value, domain: readDomain(), descriptor: pairs.read() }),
    done: (entry) => `${writeListed(entry.descriptor)} is on the ${entry.list} list of ${domainOf(entry)}.`,
  });

  function name() {
    const [, verb] = LISTS.find(([value]) => value === list.value);
    text(dialog.heading, `${verb} a key`);
    text(dialog.send, verb);
  }

  name();
  (given.descriptor ? dialog.reason : pairs.first()).focus();
}

/**
 * A function that reads a field: what it was given while it shows that unchanged, else its text. Fields drop line breaks.
 */
export function keeping(input, given, edited = (written) => written) {
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
