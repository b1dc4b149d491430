// The versions of the rules: author, reason, instances, and rollback.

import { badge, button, head, panel, troubles, viewerNotice, writeButton } from '../controls.js';
import { h } from '../dom.js';
import { ago, date } from '../format.js';
import { go } from '../links.js';
import { all } from '../observable.js';
import { paged } from '../paging.js';
import { data } from '../poll.js';
import { table } from '../table.js';
import { sourceNotice } from './notices.js';
import { rollbackDialog, versionDiff } from './version_dialogs.js';

export function versions() {
  const current = () => data.versions.get()?.current;
  const list = table({
    caption: 'Versions of the rules, newest first',
    keyOf: (version) => version.number,
    max: 2000,
    empty: 'No versions yet. Applying rules makes the first one.',
    columns: [
      { id: 'number', label: 'Version', isHead: true, mark: (version) => version.number === current(),
        node: (get) => h('div', { class: 'row' }, h('span', { class: 'strong number' }, `Version ${get().number}`),
          get().number === current() && badge('current', 'accent')) },
      { id: 'who', label: 'Author', text: (version) => version.author },
      { id: 'when', label: 'When', mark: (version) => ago(version.created_at_ms),
        node: (get) => h('time', { datetime: new Date(get().created_at_ms).toISOString(), title: date(get().created_at_ms) },
          ago(get().created_at_ms)) },
      { id: 'why', label: 'Reason', text: why },
      { id: 'by', label: 'Active on', mark: (version) => enforcing(version).join(), node: (get) => enforcers(get()) },
      { id: 'do', label: 'Actions', isBare: true, isWhole: true, mark: (version) => version.number === current(), node: tools },
    ],
  });
  function tools(get) {
    const about = `version ${get().number}`;
    return h('div', { class: 'tools' },
      get().number !== current() && writeButton('Roll back…', () => rollbackDialog(get(), current()), 'small', `to ${about}`),
      button(['Diff', h('span', { class: 'unseen' }, ` ${about}`)], () => versionDiff(get().number), 'small'));
  }

  const pages = paged(list, { resource: 'versions', id: 'number', label: 'Show older versions', limit: 50,
    isLast: (version) => (version?.number ?? 1) <= 1 });
  const viewer = viewerNotice();
  const trouble = troubles('versions');
  const source = sourceNotice();
  const stop = all(viewer.stop, trouble.stop, source.stop, pages.stop, data.status.subscribe((status) => status && pages.draw()));

  const node = h('div', { class: 'view' },
    head('Versions', 'Every change of the rules makes an immutable version. Rolling back makes a new one.',
      button('Edit rules', () => go('editor'), 'primary')),
    source.node, viewer.node, trouble.node, panel('History', '', list.node), h('div', { class: 'row' }, pages.more));
  return { title: 'Versions', node, stop };
}

function why({ comment, rollback_to: to }) {
  const text = comment || '–';
  return to === null || to === undefined ? text : `Back to version ${to}${comment ? `: ${comment}` : ''}`;
}

const enforcing = (version) =>
  (data.status.get()?.instances ?? []).filter((one) => one.version === version.number).map((one) => one.id);

function enforcers(version) {
  const who = enforcing(version);
  const of = data.status.get()?.instances.length ?? 0;
  if (who.length === 0) return h('span', { class: 'muted' }, '–');
  return h('span', { title: who.join('\n') }, badge(`${who.length} of ${of}`, who.length === of ? 'ok' : 'warn'));
}
