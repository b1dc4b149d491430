// Dialog to begin and to end an emergency, in which each instance decides by itself.

import { call, query } from '../api.js';
import { field, lifetime } from '../controls.js';
import { openDialog } from '../dialog.js';
import { h } from '../dom.js';
import { date, until } from '../format.js';
import { say } from '../messages.js';
import { data, refresh } from '../poll.js';

const EVERY = '*';

export async function emergencyDialog() {
  const begun = (data.status.get()?.emergencies ?? []).length > 0;
  return begun ? endDialog() : beginDialog();
}

function beginDialog() {
  const domain = h('input', { type: 'text', value: EVERY, required: true });
  const reason = h('input', { type: 'text', maxlength: 500, required: true, placeholder: 'Redis is being replaced' });
  const life = lifetime('3600');
  openDialog({
    title: 'Begin an emergency',
    content: [
      h('p', { class: 'muted' }, 'Every instance decides by itself within 2 seconds: by its share of what remained of each limit, or of '
        + 'its degraded_limit. Redis is not called, and is charged afterwards.'),
      field('Domain', domain, '* for every domain.'),
      h('div', { class: 'two' }, field('Reason', reason), field('For', life.node, 'After that, Redis decides again.')),
    ],
    label: 'Begin',
    submit: async () => {
      await call('PUT', 'switches', { domain: domain.value.trim(), rule: EVERY, mode: 'emergency', reason: reason.value.trim(),
        expires_in_s: life.seconds() });
      say('The emergency begins on every instance within 2 seconds.');
      refresh('status', 'audit');
      return true;
    },
  });
}

async function endDialog() {
  const { switches } = await call('GET', 'switches').catch(() => ({ switches: [] }));
  const found = switches.filter((one) => one.mode === 'emergency');
  const about = found.map((one) => h('p', {}, h('span', { class: 'strong' }, one.domain === EVERY ? 'Every domain' : one.domain),
    ` by ${one.author}, ${date(one.created_at_ms)}, `, one.expires_at_ms ? `expires ${until(one.expires_at_ms)}` : 'does not expire',
    `: ${one.reason}`));
  openDialog({
    title: 'End the emergency',
    content: [...about, h('p', { class: 'muted' }, 'Redis decides again, on every instance within 2 seconds.')],
    label: 'End',
    submit: async () => {
      await Promise.all(found.map((one) => call('DELETE', query('switches', { domain: one.domain, rule: one.rule }))));
      say('The emergency ends on every instance within 2 seconds.');
      refresh('status', 'audit');
      return true;
    },
  });
}
