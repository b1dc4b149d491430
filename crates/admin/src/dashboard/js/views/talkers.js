// Top talkers: by domain, and of all domains for the overview.

import { button, field, head, notice, panel, select, troubles, viewerNotice, writeButton } from '../controls.js';
import { h, redraw, svg } from '../dom.js';
import { count } from '../format.js';
import { link } from '../links.js';
import { say } from '../messages.js';
import { all } from '../observable.js';
import { data, watch } from '../poll.js';
import { table } from '../table.js';
import { listDialog } from './list_dialog.js';
import { origin } from './origin.js';

export function talkers() {
  const wanted = select([['', 'All domains']], '', { on: { change: draw } });
  const places = h('div', { class: 'stack' });
  const held = new Map();
  const nothing = h('p', { class: 'panel empty' }, 'No requests within the last minute.');
  const viewer = viewerNotice();
  const trouble = troubles('top');
  const from = origin('top');
  const stop = all(viewer.stop, from.stop, trouble.stop, watch('top'), data.top.subscribe((top) => top && draw()));

  function draw() {
    const { domains = [] } = data.top.get() ?? {};
    const names = domains.map((one) => one.domain);
    redraw(wanted, names.join('\n'), () => [['', 'All domains'], ...names.map((name) => [name, name])]
      .map(([value, label]) => h('option', { value }, label)));
    const shown = domains.filter((one) => !wanted.value || one.domain === wanted.value);
    for (const one of shown) {
      if (!held.has(one.domain)) held.set(one.domain, domainPanel(one.domain));
      held.get(one.domain).update(one);
    }
    const nodes = shown.map((one) => held.get(one.domain).node);
    redraw(places, JSON.stringify(shown.map((one) => one.domain)), () => (nodes.length > 0 ? nodes : nothing));
  }

  const node = h('div', { class: 'view' },
    head('Top talkers', 'The keys with the most hits and the most denied hits within the last minute.',
      field('Domain', wanted)), viewer.node, trouble.node, from.node, places);
  return { title: 'Top talkers', node, stop };
}

/** A notice that nothing is limited in a domain. */
export const noRules = (domain) => notice('warn',
  h('p', {}, h('span', { class: 'strong' }, `The domain ${domain} has no rules. `), 'Its requests pass without a limit.'));

function domainPanel(domain) {
  const heaviest = talkerTable(`Heaviest keys of ${domain}`, 'hits');
  const denied = talkerTable(`Most denied keys of ${domain}`, 'denied');
  const unruled = noRules(domain);
  const node = h('div', { class: 'stack' }, unruled, h('div', { class: 'split' },
    panel(`${domain}: heaviest`, 'hits in a minute', heaviest.node),
    panel(`${domain}: most denied`, 'denied hits in a minute', denied.node)));
  const own = (all) => all.map((talker) => ({ ...talker, domain }));
  const update = (one) => {
    heaviest.update(own(one.heaviest));
    denied.update(own(one.denied));
    unruled.hidden = one.has_rules;
  };
  return { node, update };
}

/** `unit` is `hits` or `denied`. `isMixed` shows the domain of each talker. */
function talkerTable(caption, unit, isMixed = false) {
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

const MAX_KEYS = 5;

export function topKeys() {
  const denied = talkerTable('Keys with the most denied hits', 'denied', true);
  const heaviest = talkerTable('Keys with the most hits', 'hits', true);
  const stop = all(watch('top'), data.top.subscribe((top) => {
    if (!top) return;
    denied.update(most(top.domains, 'denied'));
    heaviest.update(most(top.domains, 'heaviest'));
  }));
  const more = () => h('a', { href: link('talkers'), class: 'small' }, 'All talkers');
  const node = h('div', { class: 'split' },
    panel('Most denied keys', more(), denied.node), panel('Heaviest keys', more(), heaviest.node));
  return { node, stop };
}

const most = (domains, which) => domains
  .flatMap(({ domain, [which]: talkers }) => talkers.map((talker) => ({ ...talker, domain })))
  .sort((a, b) => b.hits - a.hits)
  .slice(0, MAX_KEYS);
