// Dialog to switch a rule off, to shadow mode, or back.

import { call, query } from '../api.js';
import { field, lifetime } from '../controls.js';
import { openDialog } from '../dialog.js';
import { h, unique } from '../dom.js';
import { date, until } from '../format.js';
import { say } from '../messages.js';
import { refresh } from '../poll.js';

const MODES = [
  ['normal', 'Normal', 'Enforced: requests over the limit are denied.'],
  ['shadow', 'Shadow', 'Counts hits and records decisions, but denies nothing.'],
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
  const asked = h('div', { class: 'two' }, field('Reason', reason), field('For', life.node, 'After that, the rule is enforced again.'));
  const set = h('p', { class: 'muted' });
  const chosen = () => choices.map((label) => label.querySelector('input')).find((input) => input.checked)?.value;
  const update = () => {
    asked.hidden = chosen() === 'normal';
    reason.required = !asked.hidden;
  };
  const form = h('fieldset', { on: { change: update } }, h('legend', { class: 'label' }, 'Effect on requests'), choices);
  update();
  openDialog({
    title: `Switch ${rule.rule}`,
    content: [h('p', { class: 'muted' }, `Domain ${rule.domain}. Takes effect on every instance within 2 seconds.`), set, form, asked],
    label: 'Switch',
    submit: async () => {
      await put(rule, chosen(), reason.value.trim(), life.seconds());
      say(`${rule.rule} is switched to ${chosen()}.`);
      refresh('rules', 'audit');
      return true;
    },
  });
  if (rule.switch) showSwitch(rule, set);
}

const put = (rule, mode, why, seconds) => (mode === 'normal'
  ? call('DELETE', query('switches', { domain: rule.domain, rule: rule.rule }))
  : call('PUT', 'switches', { domain: rule.domain, rule: rule.rule, mode, reason: why, expires_in_s: seconds }));

/** Shows the author, reason and expiry of the present switch. */
async function showSwitch(rule, node) {
  const { switches } = await call('GET', 'switches').catch(() => ({ switches: [] }));
  const found = switches.find((one) => one.domain === rule.domain && one.rule === rule.rule);
  if (!found) return;
  const end = found.expires_at_ms ? `expires ${until(found.expires_at_ms)}` : 'does not expire';
  node.append(`Switched ${found.mode} by ${found.author}, ${date(found.created_at_ms)}, ${end}: ${found.reason || 'no reason given'}`);
}
