// A table of top talkers, with a button to deny each.

import { button, writeButton } from '../controls.js';
import { h, svg } from '../dom.js';
import { count } from '../format.js';
import { say } from '../messages.js';
import { table } from '../table.js';
import { listDialog } from './list_dialog.js';

/** `unit` is `hits` or `denied`. `isMixed` shows the domain of each talker. */
export function talkerTable(caption, unit, isMixed = false) {
  const list = table({
    caption,
    keyOf: (talker) => JSON.stringify([talker.domain, talker.descriptor, talker.key]),
    empty: 'No keys within the last minute.',
    holds: true,
    columns: [
      { id: 'key', label: 'Key', isHead: true, kind: 'most', mark: (talker) => Math.round(talker.part * 100),
        node: (get) => share(get(), unit, isMixed) },
      { id: 'hits', label: unit === 'hits' ? 'Hits' : 'Denied', kind: 'numeric',
        mark: (talker) => `${talker.hits} ${talker.error}`, node: (get) => amount(get()) },
      { id: 'do', label: 'Actions', isBare: true, node: (get) => h('div', { class: 'tools' },
        get().descriptor?.length > 0 ? writeButton('Deny…', () => deny(get(), unit), 'small', get().key) : notDeniable(get().key)) },
    ],
  });
  const update = (all) => list.update(all.map((one) => ({ ...one, part: one.hits / Math.max(1, all[0].hits) })));
  return { node: list.node, update };
}

/** The key in front of a bar, whose length is relative to the first one. */
const share = (talker, unit, isMixed) => h('div', {},
  h('span', { class: `share ${unit === 'hits' ? '' : 'bad-share'}` },
    svg('svg', { 'aria-hidden': 'true', preserveAspectRatio: 'none', viewBox: '0 0 100 1' },
      svg('rect', { width: talker.part * 100, height: 1 })), h('code', {}, talker.key)),
  isMixed && h('span', { class: 'below' }, talker.domain));

const amount = (talker) => h('span', {}, count(talker.hits),
  talker.error > 0 && h('span', { class: 'below' }, `± ${count(talker.error)}`));

const WHY_NOT = 'This key is known only in part, because it is longer than 256 bytes. Add an entry with a pattern to the lists.';

/** In place of a deny entry that would match nothing. */
const notDeniable = (key) => button(['Deny…', h('span', { class: 'unseen' }, ` ${key}`)], () => say(WHY_NOT, 'bad'), 'small',
  { 'aria-disabled': 'true', title: WHY_NOT });

function deny(talker, unit) {
  const what = unit === 'hits' ? 'hits' : 'denied hits';
  listDialog({ list: 'deny', domain: talker.domain, descriptor: talker.descriptor.map((pair) => ({ ...pair, match: 'exact' })),
    reason: `Top talker: ${count(talker.hits)} ${what} in a minute` });
}
