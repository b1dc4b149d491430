// Form for an entry of the allow or deny list.

import { call } from '../api.js';
import { button, field, lifetime, select } from '../controls.js';
import { writeDescriptor } from '../descriptor.js';
import { openDialog } from '../dialog.js';
import { h, unique } from '../dom.js';
import { say } from '../messages.js';
import { data, refresh } from '../poll.js';

const LISTS = [['deny', 'Deny'], ['allow', 'Allow']];

/** Opens the form; `given` has initial values. */
export function listDialog(given = {}) {
  const list = select(LISTS, given.list ?? 'deny');
  const names = [...new Set((data.rules.get()?.rules ?? []).map((rule) => rule.domain))];
  const options = h('datalist', { id: unique('domains') }, ['*', ...names].map((name) => h('option', { value: name })));
  const domain = h('input', { type: 'text', required: true, list: options.id, value: given.domain ?? names[0] ?? '' });
  const pairs = pairFields(given.descriptor ?? [{ key: '', value: '' }]);
  const reason = h('input', { type: 'text', required: true, maxlength: 500, value: given.reason ?? '' });
  const life = lifetime('3600');
  const dialog = openDialog({
    title: given.descriptor ? 'Ban a key' : 'Add to a list',
    content: [
      h('div', { class: 'two' }, field('List', list, 'Denied requests are over the limit. Allowed requests pass and are not counted.'), field('Domain', domain, '* matches every domain'), options),
      pairs.node,
      h('div', { class: 'two' }, field('Reason', reason, 'Shown in the list and in the audit log.'), field('For', life.node)),
    ],
    label: given.list === 'deny' ? 'Ban' : 'Add',
    danger: given.list === 'deny',
    submit: async () => {
      const entry = { list: list.value, domain: domain.value.trim(), descriptor: pairs.read(), reason: reason.value.trim(),
        expires_in_s: life.seconds() };
      await call('POST', 'lists', entry);
      say(`${writeDescriptor(entry.descriptor)} is on the ${entry.list} list of ${entry.domain === '*' ? 'every domain' : entry.domain}.`);
      refresh('lists', 'audit');
      return true;
    },
  });
  (given.descriptor ? reason : pairs.first()).focus();
  return dialog;
}

/** Rows of a key and a value. */
function pairFields(given) {
  const rows = h('div', { class: 'pairs' });
  const add = ({ key, value }) => {
    const keyInput = h('input', { type: 'text', required: true, value: key, placeholder: 'api_key', 'aria-label': 'Key' });
    const valueInput = h('input', { type: 'text', value, placeholder: 'abc, bot-* or 10.0.0.0/8', 'aria-label': 'Value or pattern' });
    const row = h('div', { class: 'pair' }, keyInput, valueInput, button('Remove', () => drop(row), 'quiet'));
    rows.append(row);
    return keyInput;
  };
  const drop = (row) => {
    if (rows.childElementCount > 1) row.remove();
    rows.querySelector('input').focus();
  };
  given.forEach(add);
  const more = button('Add another key', () => add({ key: '', value: '' }).focus(), 'quiet');
  const node = h('fieldset', { class: 'stack' }, h('legend', { class: 'label' }, 'Matches requests with'), rows,
    h('div', { class: 'row' }, more),
    h('p', { class: 'hint' }, 'All of these keys must be in one descriptor. A value is exact, a pattern with *, or a CIDR range.'));
  const read = () => [...rows.children].map((row) => {
    const [key, value] = row.querySelectorAll('input');
    return { key: key.value.trim(), value: value.value };
  });
  return { node, read, first: () => rows.querySelector('input') };
}
