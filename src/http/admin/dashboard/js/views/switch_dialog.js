// Switches a rule off, to shadow, or back.

import { call, query } from '../api.js';
import { field, lifetime } from '../controls.js';
import { openDialog } from '../dialog.js';
import { h, unique } from '../dom.js';
import { date, until } from '../format.js';
import { say } from '../messages.js';
import { refresh } from '../poll.js';

const MODES = [
  ['normal', 'Normal', 'What is over the limit is denied, as the rule says.'],
  ['shadow', 'Shadow', 'It counts and is watched, and denies nothing.'],
  ['off', 'Off', 'It limits nothing and counts nothing.'],
];

export async function switchDialog(rule) {
  const group = unique('mode');
  const choices = MODES.map(([mode, name, about]) => {
    const input = h('input', { type: 'radio', name: group, value: mode, checked: mode === (rule.switch ?? 'normal') });
    return h('label', { class: 'choice' }, input, h('span', { class: 'strong' }, name), h('small', {}, about));
  });
  const reason = h('input', { type: 'text', maxlength: 500, placeholder: 'Why, for those who come after' });
  const life = lifetime('3600');
  const asked = h('div', { class: 'two' }, field('Reason', reason), field('For', life.node, 'Then the rule is as before.'));
  const set = h('p', { class: 'muted' });
  const chosen = () => choices.map((label) => label.querySelector('input')).find((input) => input.checked)?.value;
  const look = () => {
    asked.hidden = chosen() === 'normal';
    reason.required = !asked.hidden;
  };
  const form = h('fieldset', { on: { change: look } }, h('legend', { class: 'label' }, 'What it does with requests'), choices);
  look();
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
  if (rule.switch) tellOf(rule, set);
}

const put = (rule, mode, why, seconds) => (mode === 'normal'
  ? call('DELETE', query('switches', { domain: rule.domain, rule: rule.rule }))
  : call('PUT', 'switches', { domain: rule.domain, rule: rule.rule, mode, reason: why, expires_in_s: seconds }));

/** Who set the switch that is on, and until when. */
async function tellOf(rule, node) {
  const { switches } = await call('GET', 'switches').catch(() => ({ switches: [] }));
  const found = switches.find((one) => one.domain === rule.domain && one.rule === rule.rule);
  if (!found) return;
  const end = found.expires_at_ms ? `ends ${until(found.expires_at_ms)}` : 'has no end';
  node.append(`Switched ${found.mode} by ${found.author}, ${date(found.created_at_ms)}, ${end}: ${found.reason || 'no reason given'}`);
}
