// Tries a request against the current rules or an edit, and shows the result.

import { call } from '../api.js';
import { badge, busy, field, head, notice, panel, select, writeButton } from '../controls.js';
import { readDescriptor, writeDescriptor } from '../descriptor.js';
import { openDialog } from '../dialog.js';
import { h, redraw, svg, text, unique } from '../dom.js';
import { draft } from '../draft.js';
import { count, span } from '../format.js';
import { link } from '../links.js';
import { say } from '../messages.js';
import { all } from '../observable.js';
import { data, refresh, watch } from '../poll.js';

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

function dryRunResult(answer, request) {
  const { is_over_limit: isOver, descriptors } = answer;
  const verdict = isOver === null || isOver === undefined ? badge('unknown', 'warn')
    : isOver ? badge('over limit: denied', 'bad') : badge('within limits: passes', 'ok');
  return h('div', { class: 'stack' }, h('p', { class: 'row' }, 'The request would be', verdict),
    answer.problem && notice('warn', h('p', {}, answer.problem)),
    descriptors.map((one) => descriptor(one, request)),
    h('details', {}, h('summary', {}, 'As text'), h('pre', { class: 'diff', tabindex: '0' }, answer.text)));
}

function descriptor(one, request) {
  return h('section', { class: 'stack' },
    h('h3', {}, h('code', {}, writeDescriptor(one.descriptor))),
    one.listed && listed(one.listed),
    h('ol', { class: 'walk' }, one.steps.map(step)),
    one.rule ? rule(one.rule, request) : h('p', {}, badge('no limit'), ' No rule matches.'),
    one.counter && counter(one, request));
}

function listed(entry) {
  const end = entry.list === 'allow' ? badge('on the allow list', 'ok') : badge('on the deny list', 'bad');
  return h('p', { class: 'row' }, end, h('span', {}, entry.reason), h('span', { class: 'muted' }, `by ${entry.author}`));
}

function step({ key, value, taken, passed_over: others, note }) {
  return h('li', { class: taken ? 'taken' : 'not-taken' },
    h('div', {}, h('code', { class: 'strong' }, `${key}=${value}`)),
    h('div', { class: 'small' }, taken ? `taken: ${taken}` : note ?? 'nothing matches'),
    others.map((other) => h('div', { class: 'small muted' }, `passed over: ${other}`)));
}

function rule({ rule, name, file, line, limit, switch: mode, replaced_by: other }, { domain, isDraft }) {
  const at = isDraft ? h('span', {}, `${file}:${line}`)
    : h('a', { href: link('editor', { file, line, domain, rule }) }, `${file}:${line}`);
  return h('p', { class: 'row' }, h('code', { class: 'strong' }, rule), name && h('span', { class: 'muted' }, name),
    h('span', {}, limit), mode && badge(`switched ${mode}`, 'warn'),
    other && h('span', { class: 'muted' }, `replaced by ${other}`), at);
}

function counter(one, request) {
  const { used, reserved = 0, remaining, would_pass: passes, reset_after_ms: reset, cell, slot } = one.counter;
  if (used === null) return h('p', {}, badge('unknown', 'warn'), ' The store does not respond.');
  const total = used + reserved + remaining;
  const part = total === 0 ? 1 : (used + reserved) / total;
  return h('div', { class: 'stack' },
    h('p', { class: 'row' }, outcome(passes),
      h('span', { class: 'number' }, [`${count(used)} used`, reserved > 0 && `${count(reserved)} reserved`, `${count(remaining)} left`]
        .filter(Boolean).join(', ')),
      reset > 0 && h('span', { class: 'muted' }, `resets in ${span(reset)}`)),
    h('div', { class: part >= 1 ? 'meter full' : 'meter', role: 'img', 'aria-label': `${Math.round(part * 100)} % used` },
      svg('svg', { preserveAspectRatio: 'none', viewBox: '0 0 100 1' }, svg('rect', { width: Math.min(1, part) * 100, height: 1 }))),
    h('p', { class: 'hint' }, 'counter ', h('code', {}, cell), slot === null || slot === undefined ? null : `, slot ${slot}`),
    !request.isDraft && h('div', { class: 'row' }, writeButton('Reset counter…', () => resetDialog(one, request), 'small')));
}

/** The outcome is unknown with a minimum interval, as a dry run does not charge. */
function outcome(passes) {
  if (passes === null) return badge('unknown', 'warn');
  return passes ? badge('passes', 'ok') : badge('over limit', 'bad');
}

function resetDialog(one, { domain, again }) {
  const reason = h('input', { type: 'text', maxlength: 500 });
  openDialog({
    title: 'Reset this counter?',
    content: [h('p', {}, h('code', {}, writeDescriptor(one.descriptor)), ' is reset to unused.'), field('Reason', reason)],
    label: 'Reset',
    danger: true,
    submit: async () => {
      await call('POST', 'counters/reset', { domain, descriptor: one.descriptor, reason: reason.value.trim() || undefined });
      say('Counter reset.');
      refresh('audit');
      again();
      return true;
    },
  });
}
