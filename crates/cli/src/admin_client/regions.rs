//! `tollgate regions`.

use std::{fmt::Write as _, fs, path::Path};

use serde::Deserialize;
use serde_json::{Value, json};
use tollgate_control::CopyState;
use tollgate_regions::{RegionView, RegionsView};
use tollgate_rules::{RegionTable, config::read_regions};
use tollgate_runtime::{bounded_file, redact};

use super::client::{ApiClient, ClientError};
use super::output::{Column, CommandOutput, escape_line, table, utc_or_never};
use crate::flags::RegionsCommand;

/// Regions as an instance has them.
#[derive(Debug, Deserialize)]
struct Regions {
    #[serde(flatten)]
    view: RegionsView,
    /// Copy of the rules of another region.
    rules: Option<CopyState>,
}

pub(super) fn run(api: &ApiClient, command: &RegionsCommand) -> Result<CommandOutput, ClientError> {
    match command {
        RegionsCommand::List => {
            let (regions, json) = read(api)?;
            Ok(CommandOutput { text: list(&regions), json })
        }
        RegionsCommand::Drop { name, file, write, force } => {
            if !force {
                require_down(&read(api)?.0.view, name)?;
            }
            drop_region(name, file, *write)
        }
    }
}

fn read(api: &ApiClient) -> Result<(Regions, Value), ClientError> {
    let json = api.get("regions", &[])?;
    // An instance without a region table names none.
    if json.get("region").is_some_and(Value::is_null) {
        let message = "this instance has no region table; expected one that runs with --regions".to_owned();
        return Err(ClientError::Failed { code: "not_found", message });
    }
    Ok((api.read(&json)?, json))
}

fn list(Regions { view: regions, rules }: &Regions) -> String {
    let rows: Vec<_> = regions.regions.iter().map(|region| (region, share(regions, region))).collect();
    let columns: [Column<(&RegionView, String)>; 9] = [
        ("REGION", |(region, _)| region.name.clone()),
        ("STATE", |(region, _)| state(region).to_owned()),
        ("WEIGHT", |(region, _)| region.weight.to_string()),
        ("SHARE", |(_, share)| share.clone()),
        ("GENERATION", |(region, _)| or_dash(region.generation)),
        ("ROUND TRIP", |(region, _)| or_dash(region.round_trip_ms.map(|ms| format!("{ms} ms")))),
        ("OFFSET", |(region, _)| or_dash(region.clock_offset_ms.map(|ms| format!("{ms} ms")))),
        ("BORROWED", |(region, _)| or_dash(region.counts.as_ref().map(|counts| counts.borrowed_hits))),
        ("LENT", |(region, _)| or_dash(region.counts.as_ref().map(|counts| counts.lent_hits))),
    ];
    table(&rows, &columns) + &notes(regions, rules.as_ref())
}

fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

const fn state(region: &RegionView) -> &'static str {
    match (region.lost, region.own, region.up) {
        (true, ..) => "lost",
        (_, true, _) => "own",
        (.., Some(true)) => "up",
        (.., Some(false)) => "down",
        (.., None) => "unknown",
    }
}

/// Part of every global limit, in percent, rounded down.
fn share(regions: &RegionsView, region: &RegionView) -> String {
    let weight = |region: &RegionView| if region.lost { 0 } else { u64::from(region.weight) };
    let total = regions.regions.iter().map(weight).fold(0, u64::saturating_add);
    let thousandths = weight(region).saturating_mul(1_000).checked_div(total).unwrap_or_default();
    format!("{}.{} %", thousandths / 10, thousandths % 10)
}

/// Notes about everything that is not as it should be.
fn notes(regions: &RegionsView, rules: Option<&CopyState>) -> String {
    let mut notes = String::new();
    if regions.unfinished_changes > 0 {
        let waiting: Vec<String> = regions.waiting_for.iter().map(|name| escape_line(name)).collect();
        let (generation, waiting) = (regions.generation, waiting.join(", "));
        let _ = writeln!(
            notes,
            "generation {generation} is not announced by {waiting}; until then the smaller share counts"
        );
    }
    for region in regions.regions.iter().filter(|region| !region.own && !region.lost) {
        let name = escape_line(&region.name);
        if region.up != Some(true) {
            let reason = escape_line(region.error.as_deref().unwrap_or("no answer"));
            let _ = writeln!(notes, "{name} is unreachable: {reason}; each side keeps its share");
        } else if region.differs {
            let _ =
                writeln!(notes, "{name} has another table of the same generation; increase the generation");
        } else if region.generation.is_some_and(|generation| generation != regions.generation) {
            let _ = writeln!(notes, "{name} has another generation; nothing is lent until it has the same");
        }
    }
    if let Some(primary) = &regions.primary {
        let primary = escape_line(primary);
        let _ = if regions.primary_pending {
            writeln!(notes, "limits of `scope: primary` wait until all regions have the table")
        } else {
            writeln!(notes, "limits of `scope: primary` are decided by {primary}")
        };
    }
    if let Some(error) = &regions.file_error {
        let _ = writeln!(notes, "the region table is not valid: {}", escape_line(error));
    }
    if let Some(CopyState { region, compared_ms, problem }) = rules {
        let compared = utc_or_never(*compared_ms);
        let _ = writeln!(notes, "rules are copied from {}; last comparison: {compared}", escape_line(region));
        if let Some(problem) = problem {
            let _ = writeln!(notes, "rules are not compared: {}", escape_line(problem));
        }
    }
    notes
}

/// Returns an error if a region answers.
fn require_down(regions: &RegionsView, name: &str) -> Result<(), ClientError> {
    let refuse = |reason: &str| {
        let expected = "expected a region that serves no traffic (--force overrides)";
        Err(ClientError::of_file(&escape_line(name), format_args!("{reason}; {expected}")))
    };
    match regions.regions.iter().find(|region| region.name == name) {
        Some(region) if region.own => refuse("is the region that answers"),
        Some(region) if region.up == Some(true) && !region.lost => refuse("answers the other regions"),
        _ => Ok(()),
    }
}

fn drop_region(name: &str, file: &Path, write: bool) -> Result<CommandOutput, ClientError> {
    let unusable = |reason: String| ClientError::of_file(&redact::path(file), reason);
    let bytes = bounded_file::read(file).map_err(|error| unusable(error.to_string()))?;
    let before = read_regions(&redact::path(file), &bytes)
        .map_err(|report| ClientError::Invalid(report.to_string()))?;
    let dropped =
        before.region(name).ok_or_else(|| unusable(format!("has no region {}", escape_line(name))))?;
    if before.regions().iter().all(|region| region.is_lost || region.name == dropped.name) {
        return Err(unusable(format!("has no region beside {name} that is not lost; expected one")));
    }
    if before.primary() == Some(name) {
        let reason = format!("{name} is the primary region; expected another `primary` in the table first");
        return Err(unusable(reason));
    }
    let text = dropped_table(&before, name);
    if write {
        // At once: a server that reads meanwhile finds one of the two.
        let new = file.with_extension("new");
        let written = fs::write(&new, &text).and_then(|()| fs::rename(&new, file));
        written.map_err(|error| unusable(error.to_string()))?;
    }
    let generation = before.generation().saturating_add(1);
    let json = json!({ "dropped": name, "generation": generation, "table": text });
    if !write {
        return Ok(CommandOutput { text, json });
    }
    let file = redact::path(file);
    let text = format!("{name} is lost as of generation {generation}; roll {file} out to all regions\n");
    Ok(CommandOutput { text, json })
}

/// The next generation of a table, without the region.
fn dropped_table(before: &RegionTable, name: &str) -> String {
    let quoted = |text: &str| Value::from(text).to_string();
    let mut text = format!("generation: {}\n", before.generation().saturating_add(1));
    if let Some(rules) = before.writing() {
        let _ = writeln!(text, "rules: {}", quoted(rules));
    }
    if let Some(primary) = before.primary() {
        let _ = writeln!(text, "primary: {}", quoted(primary));
    }
    text.push_str("regions:\n");
    for region in before.regions() {
        let is_lost = region.is_lost || &*region.name == name;
        let _ = writeln!(
            text,
            "  {}: {{address: {}, certificate_name: {}, weight: {}, lost: {is_lost}}}",
            quoted(&region.name),
            quoted(&region.address),
            quoted(&region.certificate_name),
            region.weight
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_fixtures::temporary_file;

    fn regions() -> Regions {
        let region = |name: &str, weight: u32, state: Value| {
            let mut region = json!({
                "name": name, "address": "https://r", "weight": weight, "share": 0.0, "lost": false, "own": false,
                "differs": false,
            });
            let stated = state.as_object().cloned().expect("an object");
            region.as_object_mut().expect("an object").extend(stated);
            region
        };
        let json = json!({
            "region": "us-east", "generation": 7, "file_error": null, "primary_pending": false, "share_denials": 0,
            "unfinished_changes": 1, "waiting_for": ["eu-west"], "primary": "us-east",
            "rules": {"region": "eu-west", "compared_ms": null, "problem": "cut\u{1b}"},
            "regions": [
                region("us-east", 2, json!({"own": true, "up": true, "generation": 7})),
                region("eu-west", 1, json!({"up": false, "error": "refused", "generation": 6})),
                region("ap-south", 1, json!({"lost": true, "up": false})),
            ],
        });
        serde_json::from_value(json).expect("valid")
    }

    #[test]
    fn lists_have_shares_and_a_note_for_each_problem() {
        let text = list(&regions());
        assert!(text.contains("us-east   own    2       66.6 %"), "{text}");
        assert!(text.contains("ap-south  lost   1       0.0 %"), "{text}");
        for note in [
            "generation 7 is not announced by eu-west; until then the smaller share counts\n",
            "eu-west is unreachable: refused; each side keeps its share\n",
            "rules are copied from eu-west; last comparison: never\n",
            "rules are not compared: cut\\u{1b}\n",
            "limits of `scope: primary` are decided by us-east\n",
        ] {
            assert!(text.contains(note), "{text}");
        }
        assert!(!text.contains("ap-south is unreachable"), "{text}");
    }

    #[test]
    fn only_a_region_that_does_not_answer_is_dropped() {
        let regions = regions().view;
        assert!(require_down(&regions, "us-east").is_err());
        assert!(require_down(&regions, "eu-west").is_ok());
        assert!(require_down(&regions, "unknown").is_ok(), "the table says whether it exists");
    }

    #[test]
    fn a_dropped_region_is_lost_in_the_next_generation_and_all_else_stays() {
        let text = "generation: 7\nregions:\n  a: {address: 'https://a:1', weight: 2}\n  b: {address: 'https://b:1'}\n";
        let before = read_regions("regions.yaml", text.as_bytes()).expect("valid");
        let after = read_regions("regions.yaml", dropped_table(&before, "b").as_bytes()).expect("valid");
        assert_eq!(after.generation(), 8);
        assert_eq!(after.region("a"), before.region("a"));
        assert!(after.region("b").expect("there").is_lost);
        let (_directory, file) = temporary_file("regions.yaml");
        fs::write(&file, text).expect("writable");
        drop_region("b", &file, true).expect("dropped");
        assert_eq!(fs::read_to_string(&file).expect("readable"), dropped_table(&before, "b"));
        assert!(drop_region("a", &file, true).is_err(), "the last one");
        assert!(drop_region("c", &file, true).is_err());
    }

    #[test]
    fn the_primary_region_is_not_dropped_before_another_one_is_named() {
        let (_directory, file) = temporary_file("regions.yaml");
        let regions = "regions: {a: {address: 'https://a:1'}, b: {address: 'https://b:1'}}\n";
        fs::write(&file, format!("generation: 7\nprimary: a\n{regions}")).expect("writable");
        let error = drop_region("a", &file, true).expect_err("refused").to_string();
        assert!(error.contains("a is the primary region; expected another `primary`"), "{error}");
        drop_region("b", &file, true).expect("dropped");
        let text = fs::read_to_string(&file).expect("readable");
        let after = read_regions("regions.yaml", text.as_bytes()).expect("valid");
        assert_eq!((after.primary(), after.generation()), (Some("a"), 8));
    }
}
