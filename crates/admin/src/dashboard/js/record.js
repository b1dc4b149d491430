// Records of operators and of the system, as text.

import { writeDescriptor, writeListed } from './descriptor.js';
import { date, until } from './format.js';

/** Kinds, as options of a filter. */
export const KINDS = [['override', 'Overrides'], ['list_entry', 'List entries'], ['automatic', 'Automatic entries'], ['switch', 'Switches']];

/** Number of all records. */
export const total = (counts) => KINDS.reduce((sum, [kind]) => sum + counts[kind], 0);

export const kindOf = ({ kind, mode }) => (mode === 'emergency' ? 'emergency' : kind.replace('_', ' '));

/** The rule with its key, or the descriptor. */
export function subject(record) {
  const { kind, descriptor = [] } = record;
  if (kind === 'list_entry' || kind === 'automatic') return writeListed(descriptor);
  if (descriptor.length > 0) return `${record.rule} for ${writeDescriptor(descriptor)}`;
  return record.rule === '*' ? 'every rule' : record.rule;
}

export const domainOf = ({ domain }) => (domain === '*' ? 'every domain' : domain);

/** The keys of a `rate_limit`: a text without quotes where it does not read as JSON. */
export const writeLimit = (limit) => Object.entries(limit).map(([key, value]) => `${key}=${writeValue(value)}`).join(' ');

const writeValue = (value) => (typeof value === 'string' && readValue(value) === value && !/\s/.test(value) ? value : JSON.stringify(value));

export function readValue(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

function limitText(limit) {
  const { requests_per_unit: amount, unit = 'unit', ...others } = limit;
  return amount === undefined ? writeLimit(limit) : [`${amount} per ${unit}`, writeLimit(others)].filter(Boolean).join(', ');
}

export function effect(record) {
  const { kind, mode, list, rate_limit: limit, enforce_percent: share, ramp } = record;
  if (kind === 'override') return limitText(limit);
  if (kind === 'list_entry') return list;
  if (kind === 'automatic') return mode === 'exempt' ? 'exempt' : 'deny';
  const steps = ramp ? `; ramp ${ramp.state.replace('_', ' ')}, step ${ramp.step + 1} of ${ramp.steps.length}` : '';
  return typeof share === 'number' ? `${mode}, enforced for ${share}% of keys${steps}` : mode;
}

export const end = ({ expires_at_ms: at }) => (at ? until(at) : 'never');

/** What a record does, and who put it there. */
export const summary = (record) => `${effect(record)}; ${record.author}, ${date(record.created_at_ms)}, `
  + `${record.expires_at_ms ? `ends ${end(record)}` : 'without an end'}: ${record.reason || 'no reason given'}`;
