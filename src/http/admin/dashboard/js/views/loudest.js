// The keys of all domains that are denied the most now, and those that ask the most.

import { all } from '../cell.js';
import { panel } from '../controls.js';
import { h } from '../dom.js';
import { place } from '../places.js';
import { data, watch } from '../poll.js';
import { talkerTable } from './talker_table.js';

const MOST = 5;

export function loudest() {
  const denied = talkerTable('The keys that are denied the most', 'denied', true);
  const heaviest = talkerTable('The keys that ask for the most', 'hits', true);
  const stop = all(watch('top'), data.top.subscribe((top) => {
    if (!top) return;
    denied.update(most(top.domains, 'denied'));
    heaviest.update(most(top.domains, 'heaviest'));
  }));
  const more = () => h('a', { href: place('talkers'), class: 'small' }, 'All talkers');
  const node = h('div', { class: 'split' },
    panel('Keys that are denied the most', more(), denied.node), panel('Keys that ask the most', more(), heaviest.node));
  return { node, stop };
}

const most = (domains, which) => domains
  .flatMap(({ domain, [which]: talkers }) => talkers.map((talker) => ({ ...talker, domain })))
  .sort((a, b) => b.hits - a.hits)
  .slice(0, MOST);
