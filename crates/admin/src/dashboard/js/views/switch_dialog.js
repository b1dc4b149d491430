// Dialog to switch a rule off, to shadow mode, to a ramp, or back.

import { TIMES, field, select } from '../controls.js';
import { h, unique } from '../dom.js';
import { span } from '../format.js';
import { summary } from '../record.js';
import { recordDialog } from './record_dialog.js';

const MODES = [
  ['normal', 'Normal', 'Enforced: requests over the limit are denied.'],
  ['shadow', 'Shadow', 'Counts hits and records decisions, but denies nothing, or nothing but a share of the keys.'],
  ['ramp', 'Ramp', 'Enforced for more and more keys, and back if too many hits of these are denied.'],
  ['off', 'Off', 'Limits nothing and counts nothing.'],
];

/** Opens the dialog for a rule, and its switch if it has one. */
export function switchDialog({ domain, rule }, record) {
  const group = unique('mode');
  const present = record?.ramp ? 'ramp' : record?.mode ?? 'normal';
  const choices = MODES.map(([mode, name, about]) => {
    const input = h('input', { type: 'radio', name: group, value: mode, checked: mode === present });
    return h('label', { class: 'choice' }, input, h('span', { class: 'strong' }, name), h('small', {}, about));
  });
  const share = h('input', { type: 'number', min: 0, max: 100, step: 0.01, value: record?.ramp ? '' : record?.enforce_percent ?? '' });
  const shareField = field('Enforced share', share, 'Percentage of the keys for which the rule is enforced; empty for none.');
  const ramp = rampFields(record?.ramp);
  const chosen = () => choices.map((label) => label.querySelector('input')).find((input) => input.checked).value;
  const form = h('fieldset', { on: { change: update } }, h('legend', { class: 'label' }, 'Effect on requests'), choices);

  const dialog = recordDialog({
    title: `Switch ${rule}`,
    content: [h('p', { class: 'muted' }, `Domain ${domain}. Takes effect on every instance within 2 seconds.`),
      record && h('p', { class: 'muted' }, `Now: ${summary(record)}`), form, shareField, ramp.node],
    label: 'Switch',
    record,
    stated() {
      const [mode, what] = [chosen(), { kind: 'switch', domain, rule }];
      if (mode === 'normal' && !record) throw new Error('The rule has no switch.');
      if (mode === 'normal') return null;
      if (mode === 'ramp') {
        // A rollback sets the share before the ramp, not that of the step which this one replaces.
        return { ...what, mode: 'shadow', enforce_percent: record?.ramp?.back_to_percent, ramp: ramp.read() };
      }
      return { ...what, mode, enforce_percent: mode === 'shadow' && share.value !== '' ? Number(share.value) : undefined };
    },
    hasEnd: () => chosen() !== 'ramp',
    done: (what) => (what?.ramp ? `The ramp of ${rule} has begun.` : `${rule} is switched to ${chosen()}.`),
  });

  function update() {
    shareField.hidden = chosen() !== 'shadow';
    ramp.node.hidden = chosen() !== 'ramp';
    dialog.lifeField.hidden = chosen() === 'ramp';
    dialog.lifeField.parentElement.hidden = chosen() === 'normal';
    dialog.reason.required = chosen() !== 'normal';
  }

  update();
}

function rampFields(given) {
  const steps = h('input', { type: 'text', maxlength: 200, value: given?.steps.join(', ') ?? '1, 10, 50, 100' });
  const length = given ? String(Math.round(given.steps.length * given.step_ms / 1000)) : '3600';
  const isListed = TIMES.some(([time]) => time === length);
  const over = select(isListed ? TIMES : [[length, span(length * 1000)], ...TIMES], length);
  const denied = h('input', { type: 'number', min: 0, max: 100, step: 0.01, value: given?.max_denied_percent ?? 5 });
  const node = h('div', { class: 'stack' },
    field('Steps', steps, `Percentages of the keys, each above the one before.${given ? ' The ramp begins again with the first one.' : ''}`),
    h('div', { class: 'two' }, field('In all', over, 'Each step lasts the same time.'),
      field('Most denied, in percent', denied, 'With more denied keys of those that are enforced, the ramp is rolled back.')));

  function read() {
    const shares = steps.value.split(',').map((part) => Number(part.trim()));
    if (steps.value.trim() === '' || shares.some(Number.isNaN)) throw new Error('invalid steps; expected percentages such as 1, 10, 100');
    if (denied.value === '') throw new Error('no part that may be denied; expected a percentage');
    return { steps: shares, over_s: Number(over.value), max_denied_percent: Number(denied.value), min_hits: given?.min_hits };
  }

  return { node, read };
}
