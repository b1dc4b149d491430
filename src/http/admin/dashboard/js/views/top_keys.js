// Top talkers of all domains: the keys with the most hits, and with the most denied hits.

import { all } from '../observable.js';
import { panel } from '../controls.js';
import { h } from '../dom.js';
import { link } from '../links.js';
import { data, watch } from '../poll.js';
import { talkerTable } from './talker_table.js';

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
