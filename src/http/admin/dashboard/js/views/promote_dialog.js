// Dialog to make the candidate of a rule its limit.

import { call } from '../api.js';
import { field } from '../controls.js';
import { openDialog } from '../dialog.js';
import { h } from '../dom.js';
import { say } from '../messages.js';
import { refresh } from '../poll.js';

export function promoteDialog({ domain, rule, limit, candidate }) {
  const reason = h('input', { type: 'text', maxlength: 500, required: true, placeholder: 'Reason of the change' });
  openDialog({
    title: `Promote the candidate of ${rule}`,
    content: [
      h('p', { class: 'muted' }, `Domain ${domain}. A new version of the rules has the candidate in place of the limit.`),
      h('p', {}, `Limit now: ${limit}`), h('p', {}, `Candidate: ${candidate}`), field('Reason', reason)],
    label: 'Promote',
    submit: async () => {
      const path = `candidates/${encodeURIComponent(domain)}/${encodeURIComponent(rule)}/promote`;
      const { version } = await call('POST', path, { comment: reason.value.trim() });
      say(`The candidate of ${rule} is its limit in version ${version.number}.`);
      refresh('candidates', 'rules', 'versions', 'audit');
      return true;
    },
  });
}
