// The allow and deny lists, and automatic entries: clients that were banned again and again.

import { call } from '../api.js';
import { badge, head, panel, troubles, viewerNotice, writeButton } from '../controls.js';
import { writeListed } from '../descriptor.js';
import { openDialog } from '../dialog.js';
import { h } from '../dom.js';
import { date, until } from '../format.js';
import { say } from '../messages.js';
import { all } from '../observable.js';
import { data, refresh, watch } from '../poll.js';
import { table } from '../table.js';
import { listDialog } from './list_dialog.js';

export function lists() {
  const list = table({
    caption: 'Entries of the allow and deny lists',
    keyOf: (entry) => entry.id,
    empty: 'Both lists are empty. Entries take effect on every instance within 2 seconds.',
    columns: [
      { id: 'list', label: 'List', kind: 'tight', sort: (entry) => entry.list,
        node: (get) => (get().list === 'deny' ? badge('deny', 'bad') : badge('allow', 'ok')) },
      { id: 'what', label: 'Matches', isHead: true, sort: (entry) => writeListed(entry.descriptor),
        node: (get) => h('div', {}, h('span', { class: 'path' }, writeListed(get().descriptor)),
          h('span', { class: 'below' }, get().domain === '*' ? 'every domain' : `domain ${get().domain}`)) },
      { id: 'why', label: 'Reason', text: (entry) => entry.reason || '–' },
      { id: 'who', label: 'Added', sort: (entry) => entry.created_at_ms,
        text: (entry) => `${entry.author}, ${date(entry.created_at_ms)}` },
      { id: 'end', label: 'Expires', sort: (entry) => entry.expires_at_ms ?? Infinity,
        text: (entry) => (entry.expires_at_ms ? until(entry.expires_at_ms) : 'never') },
      { id: 'do', label: 'Actions', isBare: true, node: (get) => h('div', { class: 'tools' },
        writeButton('Remove…', () => remove(get()), 'small', writeListed(get().descriptor))) },
    ],
    order: { id: 'who', isDescending: true },
  });
  const automatic = automaticTable();
  const viewer = viewerNotice();
  const trouble = troubles('lists');
  const stop = all(viewer.stop, trouble.stop, watch('lists', 'rules'),
    data.lists.subscribe((answer) => {
      if (!answer) return;
      list.update(answer.entries);
      automatic.update(answer.automatic ?? []);
    }));
  const node = h('div', { class: 'view' },
    head('Lists', 'Requests on the deny list are over the limit; requests on the allow list pass. Allow takes precedence.',
      writeButton('Add to a list…', () => listDialog(), 'primary')),
    viewer.node, trouble.node, panel('Entries', '', list.node),
    panel('Automatic entries', 'Clients that were banned again and again, until the end of the ban.', automatic.node));
  return { title: 'Lists', node, stop };
}

function remove(entry) {
  openDialog({
    title: `Remove from the ${entry.list} list?`,
    content: [h('p', {}, h('code', {}, writeListed(entry.descriptor)), ` in ${entry.domain === '*' ? 'every domain' : entry.domain}.`),
      h('p', { class: 'muted' }, 'The rules apply to its requests again, on every instance within 2 seconds.')],
    label: 'Remove',
    danger: true,
    submit: async () => {
      await call('DELETE', `lists/${encodeURIComponent(entry.id)}`);
      say('Entry removed.');
      refresh('lists', 'audit');
      return true;
    },
  });
}

const MODES = { enforce: ['denied', 'bad'], exempt: ['exempt', 'ok'] };

/** The table of automatic entries. */
const automaticTable = () => table({
  caption: 'Automatic entries of the deny list',
  // A row is made anew when its effect changes.
  keyOf: (entry) => `${entry.id} ${entry.mode}`,
  empty: 'No client is listed after bans.',
  columns: [
    { id: 'mode', label: 'Effect', kind: 'tight', sort: (entry) => entry.mode, node: (get) => badge(...MODES[get().mode]) },
    { id: 'what', label: 'Key', isHead: true, sort: (entry) => writeListed(entry.descriptor),
      node: (get) => h('div', {}, h('span', { class: 'path' }, writeListed(get().descriptor)),
        h('span', { class: 'below' }, `domain ${get().domain}`)) },
    { id: 'why', label: 'Rule and reason', text: (entry) => `${entry.rule}: ${entry.reason || '–'}` },
    { id: 'who', label: 'Added', sort: (entry) => entry.created_at_ms, text: (entry) => `${entry.author}, ${date(entry.created_at_ms)}` },
    { id: 'end', label: 'Ends', sort: (entry) => entry.expires_at_ms, text: (entry) => until(entry.expires_at_ms) },
    { id: 'do', label: 'Actions', isBare: true, node: (get) => tools(get()) },
  ],
  order: { id: 'who', isDescending: true },
});

function tools(entry) {
  const key = writeListed(entry.descriptor);
  const lift = writeButton(entry.mode === 'exempt' ? 'End exemption' : 'Lift', () => change('DELETE', entry, 'The entry is lifted.'), 'small', key);
  const exempt = writeButton('Lift and exempt', () => change('POST', entry, 'The client is exempt for 7 days.'), 'small', key);
  return h('div', { class: 'tools' }, lift, entry.mode === 'exempt' ? null : exempt);
}

async function change(method, entry, done) {
  const id = encodeURIComponent(entry.id);
  try {
    if (method === 'DELETE') await call('DELETE', `lists/${id}`);
    else await call('POST', `automatic/${id}/exempt`, { reason: 'lifted and exempt on the dashboard' });
    say(done);
  } catch (error) {
    say(error.message, 'bad');
  }
  refresh('lists', 'audit');
}
