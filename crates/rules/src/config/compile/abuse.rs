//! Rules of the adaptive deny list: `abuse` at the root of a file.

use std::{rc::Rc, time::Duration};

use tollgate_core::duration::parse_micros;

use super::{Origin, Site, parameters::Reporter};
use crate::{
    AbuseMode, AbuseRule, AbuseTrigger, Exemption, Listing,
    config::{
        problem::{Path, Problems},
        raw::{Field, RawAbuse, RawFile, Stated},
        reader::excerpt,
    },
};

/// Maximum number of abuse rules of a domain.
const MAX_RULES: usize = 16;
/// Maximum number of client keys, and of exemptions, of a rule.
const MAX_ITEMS: usize = 256;
/// Range of `for`: shorter than a second is no sustained abuse.
const PERIODS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3_600));
/// Range of `duration`, `max_duration` and `forgive`.
const DURATIONS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30 * 86_400));
/// Values that apply where a rule states none.
const PERIOD: Duration = Duration::from_secs(30);
const DURATION: Duration = Duration::from_secs(600);
const MAX_DURATION: Duration = Duration::from_secs(86_400);
const FORGIVE: Duration = Duration::from_secs(86_400);
/// Keys whose values the configuration of Envoy states; many clients share each value.
const SHARED_KEYS: [&str; 5] =
    ["generic_key", "header_match", "query_match", "source_cluster", "destination_cluster"];

/// Compiles the rules of a file, with the positions for later reports. `known` are those of the domain's other files.
pub(super) fn rules(
    file: &RawFile,
    known: &[(AbuseRule, Site)],
    problems: &mut Problems,
) -> Vec<(AbuseRule, Site)> {
    let list = Path::Root.key("abuse");
    let mut rules: Vec<(AbuseRule, Site)> = Vec::new();
    for raw in &file.abuse {
        let path = list.item(raw.index);
        let mut compiler = AbuseCompiler { raw, reporter: Reporter { file: &file.name, problems } };
        if known.len().saturating_add(rules.len()) >= MAX_RULES {
            let message = format!("the domain has too many abuse rules; expected at most {MAX_RULES}");
            compiler.reporter.error(raw.at, &path, message);
            break;
        }
        let Some(rule) = compiler.rule(&path) else { continue };
        if let Some((_, site)) = known.iter().chain(&rules).find(|(other, _)| other.name == rule.name) {
            let message = format!("`{}` is a duplicate of {}; expected unique names", rule.name, site.origin);
            compiler.reporter.error(raw.at, &path.key("name"), message);
            continue;
        }
        let origin = Origin { file: file.name.clone(), at: raw.at };
        rules.push((rule, Site { origin, path: path.key("client_keys").to_string() }));
    }
    rules
}

/// Compiler of one rule, which reports all of its problems.
struct AbuseCompiler<'a> {
    raw: &'a RawAbuse,
    reporter: Reporter<'a>,
}

impl AbuseCompiler<'_> {
    fn rule(&mut self, path: &Path<'_>) -> Option<AbuseRule> {
        let raw = self.raw;
        let (name, client_keys) = (self.name(path), self.client_keys(path));
        let trigger = self.trigger(path);
        let duration = self.duration(&raw.duration, DURATION, DURATIONS, &path.key("duration"));
        let longest = duration.map_or(MAX_DURATION, |duration| duration.max(MAX_DURATION));
        let max_duration = self.duration(&raw.max_duration, longest, DURATIONS, &path.key("max_duration"));
        let forgive = self.duration(&raw.forgive, FORGIVE, DURATIONS, &path.key("forgive"));
        let mode = self.mode(path);
        let exempt = self.exempt(path);
        if let (Some(duration), Some(max), Some(stated)) = (duration, max_duration, raw.max_duration.stated())
            && max < duration
        {
            let message = "is shorter than `duration`; expected at least as much";
            self.reporter.error(stated.at, &path.key("max_duration"), message);
            return None;
        }
        Some(AbuseRule {
            name: name?,
            client_keys: client_keys?,
            trigger: trigger?,
            duration: duration?,
            max_duration: max_duration?,
            forgive: forgive?,
            mode: mode?,
            exempt: exempt?,
        })
    }

    fn name(&mut self, path: &Path<'_>) -> Option<Box<str>> {
        match &self.raw.name {
            Field::Invalid => None,
            Field::Stated(name) if !name.value.is_empty() && name.value.len() <= Listing::MAX_TEXT_BYTES => {
                Some((*name.value).into())
            }
            Field::Stated(name) => {
                let message = format!("expected a name of 1 to {} bytes", Listing::MAX_TEXT_BYTES);
                self.reporter.error(name.at, &path.key("name"), message);
                None
            }
            Field::Absent => {
                self.reporter.error(self.raw.at, path, "has no `name`; expected one, which its entries show");
                None
            }
        }
    }

    /// Reads the keys that identify a client.
    fn client_keys(&mut self, path: &Path<'_>) -> Option<Box<[Box<str>]>> {
        let path = path.key("client_keys");
        let Some(stated) = self.raw.client_keys.stated().filter(|keys| !keys.value.is_empty()) else {
            if !matches!(self.raw.client_keys, Field::Invalid) {
                let message = "has no `client_keys`; expected the keys whose value identifies one client, e.g. \
                               [remote_address]";
                self.reporter.error(self.raw.at, &path, message);
            }
            return None;
        };
        self.check_count(stated, &path)?;
        let mut is_valid = true;
        for (index, Stated { at, value }) in stated.value.iter().enumerate() {
            let problem = match &**value {
                "" => "is empty; expected a key of the domain's descriptors".to_owned(),
                key if key.contains('*') => format!("`{key}` is a pattern; expected a plain key"),
                key if SHARED_KEYS.contains(&key) => {
                    format!("`{key}` has a value of Envoy's configuration, which many clients share")
                }
                _ => continue,
            };
            self.reporter.error(*at, &path.item(index), problem);
            is_valid = false;
        }
        is_valid.then(|| stated.value.iter().map(|key| (*key.value).into()).collect())
    }

    /// Reads the one trigger.
    fn trigger(&mut self, path: &Path<'_>) -> Option<AbuseTrigger> {
        let raw = self.raw;
        let stated = [&raw.denied_per_second, &raw.denied_in_a_row, &raw.hits_per_second];
        if stated.iter().filter(|field| field.is_present()).count() != 1 {
            let message =
                "expected exactly one of `denied_per_second`, `denied_in_a_row` and `hits_per_second`";
            self.reporter.error(raw.at, path, message);
            return None;
        }
        let period = self.duration(&raw.period, PERIOD, PERIODS, &path.key("for"));
        let threshold = stated.iter().find_map(|field| field.stated())?;
        if threshold.value == 0 {
            self.reporter.error(threshold.at, path, "the threshold is 0; expected at least 1");
            return None;
        }
        if raw.denied_per_second.is_present() {
            return Some(AbuseTrigger::DeniedPerSecond { rate: threshold.value, period: period? });
        }
        if raw.hits_per_second.is_present() {
            return Some(AbuseTrigger::HitsPerSecond { rate: threshold.value, period: period? });
        }
        if let Some(period) = raw.period.stated() {
            let message = "has no effect beside `denied_in_a_row`, which counts requests; remove it";
            self.reporter.error(period.at, &path.key("for"), message);
            return None;
        }
        Some(AbuseTrigger::DeniedInARow { count: threshold.value })
    }

    fn duration(
        &mut self,
        field: &Field<Rc<str>>,
        default: Duration,
        (least, most): (Duration, Duration),
        path: &Path<'_>,
    ) -> Option<Duration> {
        let stated = match field {
            Field::Absent => return Some(default),
            Field::Invalid => return None,
            Field::Stated(stated) => stated,
        };
        let text = excerpt(&stated.value);
        let message = match parse_micros(&stated.value) {
            Ok(value) if (least..=most).contains(&value) => return Some(value),
            Ok(_) => format!("`{text}` is out of range; expected {least:?} to {most:?}"),
            Err(expected) => format!("`{text}` is not a duration; {expected}"),
        };
        self.reporter.error(stated.at, path, message);
        None
    }

    fn mode(&mut self, path: &Path<'_>) -> Option<AbuseMode> {
        match &self.raw.mode {
            Field::Absent => Some(AbuseMode::default()),
            Field::Invalid => None,
            field @ Field::Stated(_) => {
                let named = AbuseMode::ALL.map(|mode| (mode.name(), mode));
                let mode = self.reporter.one_of(field, &named, "a mode", &path.key("mode"));
                mode.map(|stated| stated.value)
            }
        }
    }

    fn exempt(&mut self, path: &Path<'_>) -> Option<Box<[Exemption]>> {
        let path = path.key("exempt");
        let stated = match &self.raw.exempt {
            Field::Absent => return Some(Box::default()),
            Field::Invalid => return None,
            Field::Stated(stated) => stated,
        };
        self.check_count(stated, &path)?;
        let mut exempt = Vec::new();
        for (index, Stated { at, value }) in stated.value.iter().enumerate() {
            match Exemption::parse(value) {
                Ok(exemption) => exempt.push(exemption),
                Err(reason) => self.reporter.error(*at, &path.item(index), reason),
            }
        }
        (exempt.len() == stated.value.len()).then(|| exempt.into())
    }

    fn check_count(&mut self, stated: &Stated<Vec<Stated<Rc<str>>>>, path: &Path<'_>) -> Option<()> {
        if stated.value.len() > MAX_ITEMS {
            let message = format!("has too many elements; expected at most {MAX_ITEMS}");
            self.reporter.error(stated.at, path, message);
            return None;
        }
        Some(())
    }
}
