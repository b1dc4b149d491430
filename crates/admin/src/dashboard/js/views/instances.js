// The instances and their active versions.

import { badge, notice, panel } from '../controls.js';
import { h, redraw } from '../dom.js';
import { ago } from '../format.js';
import { data } from '../poll.js';
import { table } from '../table.js';

export function instances() {
  const list = table({
    caption: 'Instances and their active versions',
    keyOf: (instance) => instance.id,
    empty: 'No instance has reported itself. Only instances that share rules through Redis do.',
    columns: [
      { id: 'id', label: 'Instance', isHead: true, mark: (instance) => isThis(instance),
        node: (get) => h('div', { class: 'row' }, h('code', {}, get().id), isThis(get()) && h('span', { class: 'muted' }, 'this one')) },
      { id: 'version', label: 'Active version', mark: (instance) => JSON.stringify([instance.version, instance.problem, ours()]),
        node: (get) => enforced(get()) },
      { id: 'program', label: 'Release', text: (instance) => instance.program },
      { id: 'started', label: 'Started', text: (instance) => ago(instance.started_at_ms) },
      { id: 'seen', label: 'Last heartbeat', text: (instance) => ago(instance.seen_at_ms) },
    ],
  });
  const wrong = h('div', { class: 'inside', hidden: true });
  const stop = data.status.subscribe((status) => {
    if (!status) return;
    list.update(status.instances);
    wrong.hidden = !status.problem;
    redraw(wrong, status.problem ?? '', () => notice('warn', h('p', {}, status.problem)));
  });
  return { node: panel('Instances', 'and their active versions', wrong, list.node), stop };
}

const isThis = (instance) => instance.id === data.status.get()?.instance;
const ours = () => data.status.get()?.rules.version;

function enforced({ version, fingerprint, problem }) {
  const name = version === null ? fingerprint.slice(0, 12) : `version ${version}`;
  const state = problem ? badge(problem, 'bad')
    : version === ours() ? badge('in step', 'ok') : badge('differs', 'warn');
  return h('div', { class: 'row' }, h('span', { class: 'number' }, name), state);
}
