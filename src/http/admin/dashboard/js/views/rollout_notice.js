// Progress of a version that was just applied.

import { h, text } from '../dom.js';
import { plural } from '../format.js';
import { notice } from '../controls.js';
import { data } from '../poll.js';

/** Shows the number of instances on which a version is active, until it is active on all. */
export function rolloutNotice({ number }) {
  const line = h('p', { role: 'status' });
  const stop = data.status.subscribe((status) => {
    if (!status) return;
    const all = status.instances.length;
    const updated = status.instances.filter((one) => one.version >= number).length;
    const isHere = status.rules.version >= number;
    const isDone = isHere && updated === all;
    text(line, isDone ? `Version ${number} is active on ${all > 1 ? `all ${all} instances` : 'this instance'}.`
      : `Version ${number} is current, and active on ${updated} of ${plural(all, 'instance', 'instances')} so far.`);
    if (isDone) queueMicrotask(() => stop());
  });
  return notice('ok', line);
}
