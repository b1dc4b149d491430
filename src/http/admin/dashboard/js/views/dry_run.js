// Dry run of a request.

import { call } from '../api.js';
import { all } from '../observable.js';
import { field, head, panel, select } from '../controls.js';
import { readDescriptor } from '../descriptor.js';
import { busy } from '../dialog.js';
import { h, redraw, text, unique } from '../dom.js';
import { draft } from '../draft.js';
import { data, watch } from '../poll.js';
import { dryRunResult } from './dry_run_result.js';

/** The last input, restored when the view is opened again. */
const last = { domain: '', lines: '' };

export function dryRun(parameters) {
  const options = h('datalist', { id: unique('domains') });
  let isEdited = false;
  const edited = () => (isEdited = true);
  const domain = h('input', { type: 'text', required: true, list: options.id, autocomplete: 'off', on: { input: edited, change: edited },
    value: parameters.get('domain') ?? last.domain });
  const lines = h('textarea', { rows: 4, required: true, spellcheck: 'false', class: 'mono',
    placeholder: 'api_key=abc\nremote_address=10.1.2.3', value: parameters.get('descriptors') ?? last.lines });
  const which = select([['', 'The active rules'], ['draft', 'The draft in the editor']], '');
  const whichField = field('Against', which);
  const wrong = h('p', { class: 'bad', role: 'alert' });
  const send = h('button', { type: 'submit', class: 'primary' }, 'Try');
  const outcome = h('div', { 'aria-live': 'polite' }, h('p', { class: 'empty' },
    'Shows the rule and the counter of each descriptor. Nothing is charged.'));

  async function evaluate(event) {
    event?.preventDefault();
    if (send.getAttribute('aria-disabled') === 'true') return;
    Object.assign(last, { domain: domain.value.trim(), lines: lines.value });
    text(wrong, '');
    busy(send, true);
    try {
      const given = lines.value.split('\n').map((line) => line.trim()).filter(Boolean).map(readDescriptor);
      const isDraft = which.value === 'draft';
      const answer = await call('POST', 'try', { domain: last.domain, descriptors: given, files: isDraft ? draft.files : undefined });
      outcome.replaceChildren(dryRunResult(answer, { domain: last.domain, isDraft, again: evaluate }));
    } catch (error) {
      text(wrong, error.message);
    }
    busy(send, false);
  }

  const stop = all(watch('rules'),
    data.rules.subscribe((answer) => answer && offer([...new Set(answer.rules.map((rule) => rule.domain))])),
    draft.changed.subscribe(() => (whichField.hidden = !draft.isChanged())));

  function offer(domains) {
    redraw(options, domains.join('\n'), () => domains.map((name) => h('option', { value: name })));
    // A field that was just emptied is about to be filled by hand.
    if (domain.value === '' && !isEdited && domains.length > 0) domain.value = domains[0];
  }

  const form = h('form', { class: 'stack', on: { submit: evaluate } },
    h('div', { class: 'two' }, field('Domain', domain), whichField), options,
    field('Descriptors', lines, 'One per line: key=value,key=value. The request is over the limit if one of them is.'),
    wrong, h('div', { class: 'row' }, send));
  const node = h('div', { class: 'view' },
    head('Try', 'Evaluate a request as from Envoy, without charging it.'),
    h('div', { class: 'split' }, panel('Request', '', h('div', { class: 'inside' }, form)),
      panel('Outcome', '', h('div', { class: 'inside' }, outcome))));
  return { title: 'Try', node, stop };
}
