// Dialog to switch a rule off, to shadow mode, to a ramp, or back.

import { call, query } from '../api.js';
import { field, lifetime, select } from '../controls.js';
import { openDialog } from '../dialog.js';
import { h, unique } from '../dom.js';
import { date, until } from '../format.js';
import { say } from '../messages.js';
import { refresh } from '../poll.js';

const TIMES = [['900', '15 minutes'], ['3600', '1 hour'], ['21600', '6 hours'], ['86400', '1 day'], ['604800', '7 days']];

const MODES = [
  ['normal', 'Normal', 'Enforced: requests over the limit are denied.'],
  ['shadow', 'Shadow', 'Counts hits and records decisions, but denies nothing.'],
  ['ramp', 'Ramp', 'Enforced for more and more keys, and back if too many hits of these are denied.'],
  ['off', 'Off', 'Limits nothing and counts nothing.'],
];

export async function switchDialog(rule) {
  const group = unique('mode');
  const choices = MODES.map(([mode, name, about]) => {
    const input = h('input', { type: 'radio', name: group, value: mode, checked: mode === (rule.switch ?? 'normal') });
    return h('label', { class: 'choice' }, input, h('span', { class: 'strong' }, name), h('small', {}, about));
  });
  const reason = h('input', { type: 'text', maxlength: 500, placeholder: 'Reason of the change' });
  const life = lifetime('3600');
  const lifeField = field('For', life.node, 'After that, the rule is enforced again.');
  const reasonAndLife = h('div', { class: 'two' }, field('Reason', reason), lifeField);
  const steps = h('input', { type: 'text', maxlength: 200, value: '1, 10, 50, 100' });
  const over = select(TIMES, '3600');
  const denied = h('input', { type: 'number', min: 0, max: 100, step: 0.01, value: 5 });
  const ramp = h('div', { class: 'stack' },
    field('Steps', steps, 'Percentages of the keys, each above the one before.'),
    h('div', { class: 'two' }, field('In all', over, 'Each step lasts the same time.'),
      field('Most denied, in percent', denied, 'With more denied keys of those that are enforced, the ramp is rolled back.')));
  const set = h('p', { class: 'muted' });
  const chosen = () => choices.map((label) => label.querySelector('input')).find((input) => input.checked)?.value;
  const update = () => {
    reasonAndLife.hidden = chosen() === 'normal';
    ramp.hidden = chosen() !== 'ramp';
    lifeField.hidden = !ramp.hidden;
    reason.required = !reasonAndLife.hidden;
  };
  const form = h('fieldset', { on: { change: update } }, h('legend', { class: 'label' }, 'Effect on requests'), choices);
  update();
  openDialog({
    title: `Switch ${rule.rule}`,
    content: [h('p', { class: 'muted' }, `Domain ${rule.domain}. Takes effect on every instance within 2 seconds.`), set, form, ramp, reasonAndLife],
    label: 'Switch',
    submit: async () => {
      const isRamp = chosen() === 'ramp';
      const begun = isRamp ? { ramp: rampOf(steps.value, over.value, denied.value) } : { expires_in_s: life.seconds() };
      await put(rule, isRamp ? 'shadow' : chosen(), { reason: reason.value.trim(), ...begun });
      say(isRamp ? `The ramp of ${rule.rule} has begun.` : `${rule.rule} is switched to ${chosen()}.`);
      refresh('rules', 'audit');
      return true;
    },
  });
  // A switch with a share is not a state of the rule.
  showSwitch(rule, set);
}

const put = (rule, mode, others) => (mode === 'normal'
  ? call('DELETE', query('switches', { domain: rule.domain, rule: rule.rule }))
  : call('PUT', 'switches', { domain: rule.domain, rule: rule.rule, mode, ...others }));

function rampOf(steps, over, denied) {
  const shares = steps.split(',').map((part) => Number(part.trim()));
  if (steps.trim() === '' || shares.some(Number.isNaN)) throw new Error('invalid steps; expected percentages such as 1, 10, 100');
  if (denied === '') throw new Error('no part that may be denied; expected a percentage');
  return { steps: shares, over_s: Number(over), max_denied_percent: Number(denied) };
}

/** Shows the author, reason and expiry of the present switch. */
async function showSwitch(rule, node) {
  const { switches } = await call('GET', 'switches').catch(() => ({ switches: [] }));
  const found = switches.find((one) => one.domain === rule.domain && one.rule === rule.rule);
  if (!found) return;
  const end = found.expires_at_ms ? `expires ${until(found.expires_at_ms)}` : 'does not expire';
  const ramp = found.ramp ? `; ramp ${found.ramp.state.replace('_', ' ')}, step ${found.ramp.step + 1} of ${found.ramp.steps.length}` : '';
  const share = found.enforce_percent === undefined || found.enforce_percent === null ? '' : `, enforced for ${found.enforce_percent}% of keys${ramp}`;
  node.append(`Switched ${found.mode}${share} by ${found.author}, ${date(found.created_at_ms)}, ${end}: ${found.reason || 'no reason given'}`);
}
