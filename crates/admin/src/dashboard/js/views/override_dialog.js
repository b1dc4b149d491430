// Dialog to override the limit of a rule.

import { call, query } from '../api.js';
import { button, field, lifetime } from '../controls.js';
import { readDescriptor, writeDescriptor } from '../descriptor.js';
import { openDialog } from '../dialog.js';
import { h } from '../dom.js';
import { until } from '../format.js';
import { say } from '../messages.js';
import { refresh } from '../poll.js';

const MAX_SHOWN = 100;

export function overrideDialog(rule) {
  const limit = h('input', { type: 'number', min: 0, max: 4294967295, step: 1, value: rule.requests_per_unit ?? '' });
  const others = h('input', { type: 'text', maxlength: 500, placeholder: 'unit=minute burst=500' });
  const key = h('input', { type: 'text', maxlength: 2000, placeholder: 'api_key=abc' });
  const life = lifetime('3600');
  const reason = h('input', { type: 'text', maxlength: 500, required: true, placeholder: 'Reason of the change' });
  const present = h('div', { class: 'stack' });
  openDialog({
    title: `Override the limit of ${rule.rule}`,
    content: [h('p', { class: 'muted' }, `Domain ${rule.domain}, ${rule.limit}. Takes effect on every instance within a second.`),
      present,
      h('div', { class: 'two' }, field('Requests per unit', limit),
        field('Other keys of rate_limit', others, 'Separated by spaces; what is not stated stays.')),
      h('div', { class: 'two' },
        field('Only for the key', key, 'The entries that the rule leaves open; empty for the whole rule.'),
        field('For', life.node, 'After that, the limit of the rule applies again.')),
      field('Reason', reason)],
    label: 'Override',
    submit: async () => {
      await call('PUT', 'overrides', { domain: rule.domain, rule: rule.rule, reason: reason.value.trim(),
        rate_limit: keysOf(limit.value, others.value, rule), expires_in_s: life.seconds(),
        key: key.value.trim() === '' ? [] : readDescriptor(key.value.trim()) });
      say(`${rule.rule} is overridden.`);
      refresh('rules', 'audit');
      return true;
    },
  });
  if (rule.override || rule.key_overrides > 0) showPresent(rule, present);
}

/** The stated keys: a value is JSON if it reads so, and a text otherwise. */
function keysOf(limit, others, rule) {
  const keys = {};
  for (const part of others.trim().split(/\s+/).filter(Boolean)) {
    const at = part.indexOf('=');
    if (at < 1) throw new Error(`invalid key ${part}; expected key=value`);
    keys[part.slice(0, at)] = valueOf(part.slice(at + 1));
  }
  const isChanged = limit !== '' && Number(limit) !== rule.requests_per_unit;
  if (isChanged || Object.keys(keys).length === 0) {
    if (limit === '') throw new Error('no limit; expected a number of requests, or another key');
    keys.requests_per_unit = Number(limit);
  }
  return keys;
}

function valueOf(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** Shows the overrides of the rule, each with a button that removes it. */
async function showPresent(rule, node) {
  const path = query('overrides', { domain: rule.domain, rule: rule.rule, limit: MAX_SHOWN });
  const { overrides, is_truncated: isTruncated } = await call('GET', path).catch(() => ({ overrides: [] }));
  const lines = overrides.map((one) => {
    const end = one.expires_at_ms ? `ends ${until(one.expires_at_ms)}` : 'without an end';
    const whose = one.key?.length > 0 ? writeDescriptor(one.key) : 'the rule';
    const line = h('p', {}, `Override of ${whose}: ${JSON.stringify(one.rate_limit)}, ${end}, by ${one.author}: ${one.reason} `);
    line.append(button('Remove', () => remove(one, line), 'small'));
    return line;
  });
  node.append(...lines);
  if (isTruncated) node.append(h('p', { class: 'muted' }, `Only ${MAX_SHOWN} of them are shown.`));
}

async function remove(one, line) {
  try {
    await call('DELETE', `overrides/${encodeURIComponent(one.id)}`);
    line.remove();
    say('Override removed.');
    refresh('rules', 'audit');
  } catch (error) {
    say(error.message, 'bad');
  }
}
