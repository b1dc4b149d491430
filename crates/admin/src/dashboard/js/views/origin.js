// The instances whose traffic is shown, and those that are missing.

import { notice } from '../controls.js';
import { h, redraw } from '../dom.js';
import { data } from '../poll.js';

const MAX_NAMES = 20;

const REASONS = {
  stale: (instance) => `its last report is ${Math.round(instance.age_ms / 1000)} s old`,
  missing: () => 'no report, as from an older release',
  not_sampling: () => 'does not sample top talkers',
};

/** Of a resource with `scope`, `instances` and `problem`. */
export function origin(name) {
  const included = h('p', { class: 'muted' });
  const absent = h('div', { class: 'stack', role: 'status', hidden: true });
  const stop = data[name].subscribe((answer) => answer && show(answer));

  function show({ scope, instances, problem }) {
    // Sums of decisions need no samples of keys.
    const isIn = (one) => one.status === 'included' || (name === 'history' && one.status === 'not_sampling');
    const [counted, missing] = [instances.filter(isIn), instances.filter((one) => !isIn(one))];
    const names = listed(counted.map((one) => one.id));
    included.textContent = scope === 'instance' ? `This instance alone: ${names}`
      : counted.length === 1 ? `1 instance: ${names}` : `Sum of ${counted.length} instances: ${names}`;
    const said = [
      problem && ['Only this instance is shown. ', problem],
      missing.length > 0 && [`${missing.length} of ${instances.length} instances are missing in the sum: `,
        listed(missing.map((one) => `${one.id} (${REASONS[one.status]?.(one) ?? one.status})`))],
    ].filter(Boolean);
    absent.hidden = said.length === 0;
    redraw(absent, JSON.stringify(said), () => said.map(([what, why]) =>
      notice('warn', h('p', {}, h('span', { class: 'strong' }, what), why))));
  }

  return { node: h('div', { class: 'stack' }, included, absent), stop };
}

const listed = (names) => (names.length > MAX_NAMES
  ? `${names.slice(0, MAX_NAMES).join(', ')} and ${names.length - MAX_NAMES} more` : names.join(', '));
