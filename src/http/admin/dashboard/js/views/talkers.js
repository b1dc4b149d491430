// Top talkers by domain.

import { all } from '../observable.js';
import { field, head, notice, panel, select, troubles, viewerNotice } from '../controls.js';
import { h, redraw } from '../dom.js';
import { data, watch } from '../poll.js';
import { origin } from './origin.js';
import { talkerTable } from './talker_table.js';

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
