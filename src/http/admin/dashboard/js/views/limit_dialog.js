// Dialog to change the limit of a rule: by an override, mostly for a time, or in its file as a new version.

import { call, query } from '../api.js';
import { button, field, lifetime } from '../controls.js';
import { readDescriptor, writeDescriptor } from '../descriptor.js';
import { openDialog } from '../dialog.js';
import { h, unique } from '../dom.js';
import { until } from '../format.js';
import { say } from '../messages.js';
import { refresh } from '../poll.js';
import { isEditable } from './source_notice.js';

const MAX_SHOWN = 100;

const WAYS = [
  ['override', 'Override', 'In place of the limit, for a time or until it is removed; for the rule or for one key.'],
  ['version', 'New version', 'In the file of the rule, which keeps everything else as it is.'],
];

export function limitDialog(rule) {
  const group = unique('way');
  const choices = WAYS.map(([way, name, about]) => {
    const input = h('input', { type: 'radio', name: group, value: way, checked: way === 'override',
      disabled: way === 'version' && isEditable() !== true });
    return h('label', { class: 'choice' }, input, h('span', { class: 'strong' }, name), h('small', {}, about));
  });
  const limit = h('input', { type: 'number', min: 0, max: 4294967295, step: 1, value: rule.requests_per_unit ?? '' });
  const others = h('input', { type: 'text', maxlength: 500, placeholder: 'unit=minute burst=500' });
  const key = h('input', { type: 'text', maxlength: 2000, placeholder: 'api_key=abc' });
  const life = lifetime('3600');
  const reason = h('input', { type: 'text', maxlength: 500, required: true, placeholder: 'Reason of the change' });
  const chosen = () => choices.map((label) => label.querySelector('input')).find((input) => input.checked)?.value;
  const keyField = field('Only for the key', key, 'The entries that the rule leaves open; empty for the whole rule.');
  const lifeField = field('For', life.node, 'After that, the limit of the rule applies again.');
  const update = () => [keyField, lifeField].forEach((node) => (node.hidden = chosen() !== 'override'));
  const form = h('fieldset', { on: { change: update } }, h('legend', { class: 'label' }, 'Way'), choices);
  const present = h('div', { class: 'stack' });
  update();
  openDialog({
    title: `Change the limit of ${rule.rule}`,
    content: [h('p', { class: 'muted' }, `Domain ${rule.domain}, ${rule.limit}. Takes effect on every instance within a second.`),
      present, form,
      h('div', { class: 'two' }, field('Requests per unit', limit),
        field('Other keys of rate_limit', others, 'Separated by spaces; what is not stated stays.')),
      h('div', { class: 'two' }, keyField, lifeField), field('Reason', reason)],
    label: 'Change',
    submit: async () => {
      const rateLimit = keysOf(limit.value, others.value, rule);
      const why = reason.value.trim();
      if (chosen() === 'version') {
        const path = `rules/${encodeURIComponent(rule.domain)}/${encodeURIComponent(rule.rule)}`;
        const { version } = await call('PUT', path, { rate_limit: rateLimit, comment: why });
        say(`${rule.rule} is changed in version ${version.number}.`);
      } else {
        await call('PUT', 'overrides', { domain: rule.domain, rule: rule.rule, rate_limit: rateLimit, reason: why,
          key: key.value.trim() === '' ? [] : readDescriptor(key.value.trim()), expires_in_s: life.seconds() });
        say(`${rule.rule} is overridden.`);
      }
      refresh('rules', 'versions', 'audit');
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
