// Dialogs that put and remove records, each on the condition that the record is still the one that was shown.

import { Refused, call, query } from '../api.js';
import { field, lifetime, notice } from '../controls.js';
import { openDialog } from '../dialog.js';
import { h } from '../dom.js';
import { say } from '../messages.js';
import { refresh } from '../poll.js';
import { domainOf, subject, summary } from '../record.js';
import { forceGate } from './force.js';

/**
 * Opens a dialog that puts a record, in place of `record` if that is given. `stated()` returns the fields of its kind, or null
 * to remove the record; `hasEnd()` whether it has a lifetime; `done` returns the message about the change. Returns the
 * dialog's handle, with the field of the reason and that of the lifetime.
 */
export function recordDialog({ title, content, label, record, reason: given = '', wide, stated, done, hasEnd = () => true }) {
  const reason = h('input', { type: 'text', required: true, maxlength: 500, value: record?.reason ?? given });
  const life = lifetime(record);
  const lifeField = field('For', life.node);
  const [gate, standing] = [forceGate(), condition(record)];
  let attempted = '';
  const handle = openDialog({
    title,
    wide,
    content: [gate.node, standing.node, content,
      h('div', { class: 'two' }, field('Reason', reason, 'Shown with the record and in the audit log.'), lifeField)],
    label,
    submit: async () => {
      const what = stated();
      // What was confirmed is one record only.
      if (attempted !== JSON.stringify(what)) {
        gate.reset();
        if (!record) standing.reset();
      }
      attempted = JSON.stringify(what);
      const one = { ...what, expires_in_s: hasEnd() ? life.seconds() : undefined };
      const put = (base) => gate.send((force) =>
        call('PUT', 'records', { records: [{ ...one, base }], reason: reason.value.trim(), force }));
      await standing.send(what ? put : (base) => remove(record, base));
      return finish(done(what));
    },
  });
  return { ...handle, reason, lifeField };
}

/** Opens a dialog that removes records. Those that could not be removed remain in it. */
export function removalDialog(records, { title, about, label = 'Remove', done = 'Removed.' }) {
  let left = records.map((record) => {
    const standing = condition(record);
    const line = h('p', {}, h('code', {}, subject(record)), ` of ${domainOf(record)}: ${summary(record)}`);
    return { node: h('div', { class: 'stack' }, standing.node, line), attempt: () => standing.send((base) => remove(record, base)) };
  });
  openDialog({
    title,
    content: [left.map(({ node }) => node), h('p', { class: 'muted' }, about)],
    label,
    submit: async () => {
      const results = await Promise.allSettled(left.map(({ attempt }) => attempt()));
      const errors = results.filter(({ reason }) => reason);
      if (errors.length === 0) return finish(done);
      left.forEach(({ node }, at) => results[at].reason || node.remove());
      left = left.filter((one, at) => results[at].reason);
      showChanges();
      const gone = records.length - left.length;
      throw new Error(`${gone > 0 ? `Removed ${gone} of ${records.length}. ` : ''}${errors[0].reason.message}`);
    },
  });
}

/** One that others removed meanwhile is what was wanted. */
const remove = ({ key }, base) => call('DELETE', query(`records/${key}`, { base })).catch((error) => {
  if (error.status !== 404) throw error;
});

const showChanges = () => refresh('records', 'rules', 'status', 'audit');

function finish(message) {
  say(message);
  showChanges();
  return true;
}

/** `send(attempt)` calls `attempt(base)`. Where the base is not met, it shows the present record, and the next call is based on that. */
function condition(record) {
  const node = h('div', { class: 'stack' });
  let base;
  const reset = () => {
    base = record?.revision ?? 0;
    node.replaceChildren();
  };

  async function send(attempt) {
    try {
      return await attempt(base);
    } catch (error) {
      if (!(error instanceof Refused) || error.code !== 'stale') throw error;
      const { current } = error.details;
      base = current?.revision ?? 0;
      const what = !current ? 'Removed meanwhile.' : `${record ? 'Changed meanwhile' : 'Exists already,'} by ${current.author}`;
      node.replaceChildren(notice('warn', h('p', {}, h('span', { class: 'strong' }, what), current && ` ${summary(current)}`)));
      throw new Error('What is there now has not been changed. Send again to change it.');
    }
  }

  reset();
  return { node, send, reset };
}
