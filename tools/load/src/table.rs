//! The report as text.

use std::{
    io::{self, Write},
    time::Duration,
};

use hdrhistogram::Histogram;

use super::report::Report;

/// Width of the longest bar in characters.
const BAR_CHARS: u64 = 40;

pub(super) fn write(out: &mut impl Write, report: &Report) -> io::Result<()> {
    let (settings, tally) = (&report.settings, &report.tally);
    let targets: Vec<String> = settings.targets.iter().map(ToString::to_string).collect();
    writeln!(out, "target      {}", targets.join(", "))?;
    let model = settings.rate.map_or("closed loop".to_owned(), |rate| format!("{rate} per second"));
    let (connections, streams) = (settings.connections, settings.streams);
    writeln!(out, "load        {connections} connections with {streams} streams, {model}")?;
    let all = tally.answered().saturating_add(tally.failed());
    let (time, rate) = (report.measured, report.rate());
    writeln!(out, "requests    {all} in {time:.1?}, {rate:.0} answered per second")?;
    let mut row = |what: &str, count, why: &str| {
        let padding = if why.is_empty() { "" } else { "  " };
        writeln!(out, "  {what:<18} {count:>10}  {:>5} %{padding}{why}", percent(count, all))
    };
    row("ok", tally.ok, "")?;
    row("over limit", tally.over_limit, "")?;
    for (code, (count, message)) in &tally.errors {
        row(code, *count, message)?;
    }
    if tally.unsent > 0 {
        writeln!(out, "  never sent         {:>10}  no stream was free", tally.unsent)?;
    }
    write_latencies(out, report)?;
    write_keys(out, report)
}

fn write_latencies(out: &mut impl Write, report: &Report) -> io::Result<()> {
    if report.tally.latencies.is_empty() {
        return Ok(());
    }
    let quantiles: Vec<String> =
        report.latencies().map(|(name, micros)| format!("{name} {}", time(micros))).collect();
    writeln!(out, "latency     {}", quantiles.join(", "))?;
    let rows = rows(&report.tally.latencies);
    let largest = rows.iter().map(|(_, count)| *count).max().unwrap_or_default();
    for (bound, count) in rows {
        let length = count.saturating_mul(BAR_CHARS).checked_div(largest).unwrap_or_default();
        let bar = "█".repeat(usize::try_from(length).unwrap_or_default());
        let share = percent(count, report.tally.latencies.len());
        let row = format!("  up to {:>7} {share:>5} % {bar}", time(bound));
        writeln!(out, "{}", row.trim_end())?;
    }
    Ok(())
}

fn write_keys(out: &mut impl Write, report: &Report) -> io::Result<()> {
    let (keys, count) = (&report.keys, report.settings.keys);
    writeln!(out, "keys        {} of {count} seen", keys.seen)?;
    let spread = format!("{} to {} a key, the most for key {}", keys.least, keys.most, keys.key);
    writeln!(out, "admitted    {} hits, {spread}", keys.total)?;
    if let Some(limit) = report.settings.admitted_limit {
        let (beyond, within, early) = (keys.beyond, keys.denied_within, keys.denied_early);
        let denied = format!("{within} denied within it, {early} requests denied early");
        writeln!(out, "limit       {limit} a key: {beyond} hits beyond it, {denied}")?;
    }
    Ok(())
}

/// Counts of latencies in buckets with upper bounds of 1, 2, 5, 10, 20, 50, … microseconds, from the first bucket that is
/// not empty to the last.
fn rows(latencies: &Histogram<u64>) -> Vec<(u64, u64)> {
    let mut rows: Vec<(u64, u64)> = Vec::new();
    for step in latencies.iter_recorded() {
        let bound = bounds().find(|bound| *bound >= step.value_iterated_to()).unwrap_or(u64::MAX);
        let first = rows.last().map_or(bound, |(last, _)| last.saturating_add(1));
        rows.extend(bounds().filter(|between| (first..=bound).contains(between)).map(|bound| (bound, 0)));
        if let Some((_, count)) = rows.last_mut() {
            *count = count.saturating_add(step.count_at_value());
        }
    }
    rows
}

/// Upper bounds of the buckets, up to 10,000 seconds.
fn bounds() -> impl Iterator<Item = u64> {
    (0..10).flat_map(|power| [1, 2, 5].map(|first: u64| first.saturating_mul(10_u64.pow(power))))
}

/// A duration in a readable unit.
fn time(micros: u64) -> String {
    let time = Duration::from_micros(micros);
    let is_round = bounds().any(|bound| bound == micros);
    if micros < 1000 || is_round { format!("{time:?}") } else { format!("{time:.2?}") }
}

/// A percentage with one decimal.
fn percent(count: u64, all: u64) -> String {
    let permille = u128::from(count).saturating_mul(1000).checked_div(u128::from(all)).unwrap_or_default();
    format!("{}.{}", permille / 10, permille % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_histogram_has_every_row_between_the_first_and_the_last() {
        let mut latencies = Histogram::<u64>::new_with_bounds(1, 1_000_000, 3).expect("bounds");
        assert_eq!(rows(&latencies), []);
        for (micros, count) in [(90, 1), (100, 2), (101, 3), (900, 4), (1000, 5)] {
            latencies.record_n(micros, count).expect("within the bounds");
        }
        assert_eq!(rows(&latencies), [(100, 3), (200, 3), (500, 0), (1000, 9)]);
    }

    #[test]
    fn times_and_shares_are_short() {
        assert_eq!(
            [5, 999, 1000, 1234, 20_000, 3_600_000].map(time),
            ["5µs", "999µs", "1ms", "1.23ms", "20ms", "3.60s"]
        );
        assert_eq!(
            (percent(1, 3), percent(0, 0), percent(7, 7)),
            ("33.3".into(), "0.0".into(), "100.0".into())
        );
    }
}
