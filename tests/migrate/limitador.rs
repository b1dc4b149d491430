//! Documented translation of Limitador's limits: both sides, evaluated by their own semantics, decide alike.

use super::*;
use crate::docs::page;

/// The attributes of a request, by key.
type Attributes = BTreeMap<&'static str, &'static str>;

/// The requirement of a condition on a value.
#[derive(Debug)]
enum Test {
    Is(String),
    IsNot(String),
    Begins(String),
    OneOf(Vec<String>),
}

/// A limit in Limitador's terms: it counts requests that meet all conditions and have all variables, with one counter
/// for each combination of the variables.
#[derive(Debug, Default)]
struct Limit {
    namespace: String,
    max_value: u64,
    conditions: Vec<(String, Test)>,
    variables: Vec<String>,
}

/// The key in `descriptors[0]['key']`, `descriptors[0].key`, or alone as older versions have it, and what follows.
fn key_of(text: &str) -> (String, &str) {
    let text = text.trim();
    let (text, ends) = match text.strip_prefix("descriptors[0]") {
        Some(rest) => match rest.strip_prefix("['") {
            Some(rest) => (rest, "']"),
            None => (rest.strip_prefix('.').expect("a key"), " "),
        },
        None => (text, " "),
    };
    let end = text.find(ends).or_else(|| text.find(".startsWith")).unwrap_or(text.len());
    let rest = &text[end..];
    (text[..end].to_owned(), rest.strip_prefix("']").unwrap_or(rest).trim())
}

fn condition(text: &str) -> (String, Test) {
    let (key, rest) = key_of(text);
    let word = |text: &str| text.trim().trim_matches('\'').to_owned();
    let test = if let Some(value) = rest.strip_prefix("==") {
        Test::Is(word(value))
    } else if let Some(value) = rest.strip_prefix("!=") {
        Test::IsNot(word(value))
    } else if let Some(list) = rest.strip_prefix("in [") {
        Test::OneOf(list.trim_end_matches(']').split(',').map(word).collect())
    } else {
        let value = rest.strip_prefix(".startsWith(").unwrap_or_else(|| panic!("no condition: {text}"));
        Test::Begins(word(value.trim_end_matches(')')))
    };
    (key, test)
}

/// Limits in the form that the documentation has them: one key a line, and lists in lines of their own or empty.
fn limits(yaml: &str) -> Vec<Limit> {
    let mut limits: Vec<Limit> = Vec::new();
    let mut list = "";
    for line in yaml.lines() {
        let (is_first, field) = match line.strip_prefix("- ") {
            Some(field) => (true, field),
            None => (false, line.trim()),
        };
        if is_first {
            limits.push(Limit::default());
        }
        let limit = limits.last_mut().expect("a limit");
        if let Some(item) = field.strip_prefix("- ") {
            let item = item.trim_matches('"');
            match list {
                "conditions" => limit.conditions.push(condition(item)),
                _ => limit.variables.push(key_of(item).0),
            }
            continue;
        }
        let (name, value) = field.split_once(':').expect("a field");
        match (name, value.trim()) {
            ("namespace", value) => limit.namespace = value.to_owned(),
            ("max_value", value) => limit.max_value = value.parse().expect("a number"),
            ("conditions" | "variables", "" | "[]") => {
                list = if name == "conditions" { "conditions" } else { "variables" }
            }
            ("seconds" | "name", _) => {}
            other => panic!("unknown field {other:?}"),
        }
    }
    limits
}

impl Limit {
    fn meets(&self, request: &Attributes) -> bool {
        let holds = |(key, test): &(String, Test)| {
            request.get(&**key).is_some_and(|value| match test {
                Test::Is(other) => value == other,
                Test::IsNot(other) => value != other,
                Test::Begins(other) => value.starts_with(&**other),
                Test::OneOf(others) => others.iter().any(|other| value == other),
            })
        };
        self.conditions.iter().all(holds) && self.variables.iter().all(|key| request.contains_key(&**key))
    }

    /// The descriptor that Envoy is to send for it: the keys of its conditions, then its variables; or one that is always
    /// the same. None where the request lacks one of them.
    fn descriptor(&self, request: &Attributes) -> Option<Value> {
        let mut keys: Vec<&str> = self.conditions.iter().map(|(key, _)| &**key).collect();
        keys.dedup();
        keys.extend(self.variables.iter().map(|key| &**key));
        if keys.is_empty() {
            return Some(json!({ "entries": [{ "key": "generic_key", "value": "all" }] }));
        }
        let entry = |key: &&str| Some(json!({ "key": key, "value": request.get(key)? }));
        let entries: Option<Vec<Value>> = keys.iter().map(entry).collect();
        Some(json!({ "entries": entries? }))
    }
}

/// Limitador, within one window: a request that one limit denies is counted by none.
#[derive(Default)]
struct Limitador {
    counters: BTreeMap<(usize, Vec<String>), u64>,
}

impl Limitador {
    fn passes(&mut self, limits: &[Limit], request: &Attributes) -> bool {
        let met = limits.iter().enumerate().filter(|(_, limit)| limit.meets(request));
        let counters: Vec<_> = met
            .map(|(at, limit)| {
                let values = limit.variables.iter().map(|key| request[&**key].to_owned()).collect();
                ((at, values), limit.max_value)
            })
            .collect();
        let used = |key| self.counters.get(key).copied().unwrap_or_default();
        if counters.iter().any(|(key, most)| used(key) + 1 > *most) {
            return false;
        }
        for (key, _) in counters {
            *self.counters.entry(key).or_default() += 1;
        }
        true
    }
}

/// Requests of every kind that the rows are about, in an order that mixes them, always the same.
fn requests() -> Vec<Attributes> {
    let mut seed: u32 = 7;
    let mut draw = |values: &[&'static str]| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        values.get(seed as usize >> 16 & 7).copied()
    };
    let request = |_| {
        let drawn = [
            ("req.method", draw(&["GET", "POST", "POST", "DELETE", "GET", "POST", "DELETE", "DELETE"])),
            (
                "req.path",
                draw(&["/api/a", "/health", "/api/b", "/index", "/api/", "/health", "/api/c/d", "/api"]),
            ),
            ("user_id", draw(&["ann", "bob", "cid", "ann", "bob", "cid", "ann"])),
            ("plan", draw(&["free", "trial", "pro", "freer", "free", "trial"])),
        ];
        drawn.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
    };
    (0..480).map(request).collect()
}

/// Pairs of Limitador's side and ours.
fn rows() -> Vec<(String, String)> {
    let blocks = page("docs/migrate/from-limitador.md").blocks();
    let pairs = blocks.chunks(2).map(|pair| match pair {
        [theirs, ours] if theirs.info == "yaml limitador" && ours.info == "yaml" => {
            (theirs.text.clone(), ours.text.clone())
        }
        _ => panic!("no pair: {pair:?}"),
    });
    pairs.collect()
}

/// Where the two differ, if they do.
fn difference(theirs: &[Limit], ours: &str) -> Option<String> {
    let tollgate = Tollgate::serving(ours, &[]);
    let mut limitador = Limitador::default();
    let (mut passed, mut denied) = (0, 0);
    for request in requests() {
        let expected = limitador.passes(theirs, &request);
        let descriptors: Vec<Value> = theirs.iter().filter_map(|limit| limit.descriptor(&request)).collect();
        if expected {
            passed += 1;
        } else {
            denied += 1;
        }
        if descriptors.is_empty() {
            assert!(expected, "no limit is met, and one denies: {request:?}");
            continue;
        }
        let body = json!({ "domain": theirs[0].namespace, "descriptors": descriptors });
        let status = tollgate.post(&body.to_string()).status;
        if status != if expected { 200 } else { 429 } {
            return Some(format!("{request:?}: {status}, although Limitador lets it pass: {expected}"));
        }
    }
    assert!(passed > 5 && denied > 5, "the requests show nothing: {passed} pass, {denied} do not");
    None
}

#[test]
fn limits_of_limitador_and_their_documented_translation_decide_alike() {
    let rows = rows();
    assert!(rows.len() >= 4, "{}", rows.len());
    for (theirs, ours) in rows {
        let limits = limits(&theirs);
        // A window may end on the way, but hardly three times.
        let found: Vec<_> = (0..3).map_while(|_| difference(&limits, &ours)).collect();
        assert!(found.len() < 3, "{found:?}\n{theirs}\n{ours}");
    }
}
