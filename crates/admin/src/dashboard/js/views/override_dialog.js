// Dialog to override the limit of a rule, or of one of its keys.

import { field } from '../controls.js';
import { readDescriptor, writeDescriptor } from '../descriptor.js';
import { h } from '../dom.js';
import { readValue, writeLimit } from '../record.js';
import { keeping } from './list_dialog.js';
import { recordDialog } from './record_dialog.js';

/** Opens the dialog for a rule, or for an override that there is. */
export function overrideDialog(rule, record) {
  const { requests_per_unit: amount = '', ...others } = record ? record.rate_limit : { requests_per_unit: rule.requests_per_unit ?? '' };
  const limit = h('input', { type: 'number', min: 0, max: 4294967295, step: 1, value: amount });
  const more = h('input', { type: 'text', maxlength: 2000, placeholder: 'unit=minute burst=500', value: writeLimit(others) });
  const readMore = keeping(more, others, readKeys);
  const pairs = record?.descriptor ?? [];
  const key = h('input', { type: 'text', maxlength: 2000, placeholder: 'api_key=abc', value: writeDescriptor(pairs), disabled: Boolean(record) });
  const readKey = keeping(key, pairs, (written) => (written.trim() === '' ? [] : readDescriptor(written.trim())));
  recordDialog({
    title: `Override the limit of ${rule.rule}`,
    content: [h('p', { class: 'muted' }, [`Domain ${rule.domain}`, rule.limit].filter(Boolean).join(', '), '. Takes effect on every instance within a second.'),
      h('div', { class: 'two' }, field('Requests per unit', limit),
        field('Other keys of rate_limit', more, 'Separated by spaces; what is not stated stays.')),
      field('Only for the key', key, 'The entries that the rule leaves open; empty for the whole rule.')],
    label: 'Override',
    record,
    stated: () => ({ kind: 'override', domain: rule.domain, rule: rule.rule, descriptor: readKey(),
      rate_limit: limitOf(limit.value, readMore(), record ? undefined : rule.requests_per_unit) }),
    done: () => `${rule.rule} is overridden.`,
  });
}

/** The stated keys; without others, a limit may be the present one. */
function limitOf(limit, others, present) {
  const isOnly = Object.keys(others).length === 0;
  if (limit === '' && isOnly) throw new Error('no limit; expected a number of requests, or another key');
  return limit === '' || (!isOnly && Number(limit) === present) ? others : { requests_per_unit: Number(limit), ...others };
}

function readKeys(written) {
  return Object.fromEntries(written.trim().split(/\s+/).filter(Boolean).map((part) => {
    const at = part.indexOf('=');
    if (at < 1) throw new Error(`invalid key ${part}; expected key=value`);
    return [part.slice(0, at), readValue(part.slice(at + 1))];
  }));
}
