// Dialogs to begin and to end an emergency, in which each instance decides by itself.

import { call } from '../api.js';
import { field } from '../controls.js';
import { h } from '../dom.js';
import { say } from '../messages.js';
import { data } from '../poll.js';
import { recordDialog, removalDialog } from './record_dialog.js';

const EVERY = '*';

export async function emergencyDialog() {
  const begun = (data.status.get()?.emergencies ?? []).length > 0;
  return begun ? endDialog() : beginDialog();
}

/** Opens the dialog to begin an emergency, or to change `record`, which is one. */
export function beginDialog(record) {
  const domain = h('input', { type: 'text', value: record?.domain ?? EVERY, required: true, disabled: Boolean(record) });
  recordDialog({
    title: record ? 'Change the emergency' : 'Begin an emergency',
    content: [
      h('p', { class: 'muted' }, 'Every instance decides by itself within 2 seconds: by its share of what remained of each limit, or of '
        + 'its degraded_limit. Redis is not called, and is charged afterwards.'),
      field('Domain', domain, '* for every domain.'),
    ],
    label: record ? 'Save' : 'Begin',
    record,
    stated: () => ({ kind: 'switch', domain: domain.value.trim(), rule: EVERY, mode: 'emergency' }),
    done: () => (record ? 'The emergency is changed.' : 'The emergency begins on every instance within 2 seconds.'),
  });
}

async function endDialog() {
  try {
    const { records } = await call('GET', `records?kind=switch&rule=${EVERY}&limit=10000`);
    removalDialog(records.filter((one) => one.mode === 'emergency'), {
      title: 'End the emergency',
      about: 'Redis decides again, on every instance within 2 seconds.',
      label: 'End',
      done: 'The emergency ends on every instance within 2 seconds.',
    });
  } catch (error) {
    say(error.message, 'bad');
  }
}
