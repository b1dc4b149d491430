//! Draws the requests that each algorithm admits of the same traffic: `cargo run --example admitted` writes `docs/admitted.svg`.
//!
//! The limit is 10 per 10 seconds. A burst of 20 requests comes just before an edge of the fixed window, another
//! one right after it, and later a steady flow of four times the limit. The algorithms are those of the
//! memory store, with simulated times.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout
)]

use std::{fmt::Write as _, fs, num::NonZeroU64, ops::Range, path::Path};

use tollgate::algorithm::{Algorithm, Charging, CounterState, Parameters, Policy};
use tollgate::quota::{Quota, Window};
use tollgate::{clock::Timestamp, descriptor::Hits, lease::LeaseId};

/// Path of the picture within the project.
pub(crate) const FILE: &str = "docs/admitted.svg";

/// Requests in a window, tokens in a bucket, or permits.
pub(crate) const LIMIT: usize = 10;

/// The window. All times in this file are in milliseconds.
pub(crate) const WINDOW_MS: u64 = 10_000;

/// Duration of a request.
const REQUEST_MS: u64 = 2_000;

/// Length of the picture, from an edge of the fixed window.
const END_MS: u64 = 40_000;

/// Time span of one bar.
const BAR_MS: u64 = 250;

/// Arrival times of requests.
fn arrivals() -> Vec<u64> {
    let burst = |start: u64| (0..20).map(move |number| start + number * 10);
    let steady = (14_000..END_MS).step_by(250);
    burst(9_500).chain(burst(10_000)).chain(steady).collect()
}

/// Arrival times of the requests that an algorithm admits.
pub(crate) fn admitted(algorithm: Algorithm) -> Vec<u64> {
    let quota = Quota { limit: LIMIT as u64, window: Window::from_seconds(10).expect("in range") };
    let policy = Policy::new(algorithm, quota, &Parameters::default()).expect("valid");
    // An edge of all windows of 10 seconds.
    let at = |millis: u64| Timestamp::from_micros(1_700_000_000_000_000 + millis * 1_000);
    let (mut state, mut admitted) = (CounterState::default(), Vec::<u64>::new());
    let mut in_progress = Vec::<(u64, LeaseId)>::new();
    for (number, arrival) in (1..).zip(arrivals()) {
        for (_, lease) in in_progress.extract_if(.., |(ends, _)| *ends <= arrival) {
            policy.apply(&mut state, at(arrival), Hits::Release(lease), Charging::Independent);
        }
        let lease = LeaseId::new(NonZeroU64::new(number).expect("from 1 on"));
        let hit = Hits::Acquire { amount: NonZeroU64::MIN, lease };
        if policy.apply(&mut state, at(arrival), hit, Charging::Independent) {
            admitted.push(arrival);
            in_progress.push((arrival + REQUEST_MS, lease));
        }
    }
    admitted
}

/// Number of times within a range.
fn count(times: &[u64], within: Range<u64>) -> usize {
    times.iter().filter(|time| within.contains(time)).count()
}

/// Maximum number of times within any range of that length.
pub(crate) fn max_within(times: &[u64], length: u64) -> usize {
    times.iter().map(|start| count(times, *start..start + length)).max().unwrap_or(0)
}

const LEFT: u64 = 34;
const TOP: u64 = 84;
const BAR_WIDTH: u64 = 5;
const HIT_HEIGHT: usize = 4;
const PLOT_WIDTH: u64 = END_MS / BAR_MS * BAR_WIDTH;
const PLOT_HEIGHT: u64 = 80;
const PANEL_HEIGHT: u64 = 122;

const STYLE: &str = "
  text { font: 13px system-ui, sans-serif; fill: #24292f }
  .name { font-weight: 600; font-family: ui-monospace, monospace }
  .small { font-size: 11px }
  .paper { fill: #ffffff } .axis { stroke: #8c959f } .edge { stroke: #d0d7de }
  .limit { stroke: #24292f; stroke-dasharray: 5 4 }
  .offered { fill: #c8ced6 } .admitted { fill: #2f6fd0 }
  .line { stroke: #c4501b; stroke-width: 2; fill: none }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .paper { fill: #0d1117 } .axis { stroke: #6e7681 } .edge { stroke: #30363d }
    .limit { stroke: #e6edf3 }
    .offered { fill: #484f58 } .admitted { fill: #6aa5ff }
    .line { stroke: #ff9d5c }
  }
";

fn x(millis: u64) -> u64 {
    LEFT + millis / BAR_MS * BAR_WIDTH
}

/// Height of a number of hits in a panel that begins at `panel`.
fn y(panel: u64, hits: usize) -> u64 {
    panel + PLOT_HEIGHT - (hits * HIT_HEIGHT) as u64
}

/// Draws a vertical or horizontal line.
fn rule(class: &str, from: (u64, u64), to: (u64, u64)) -> String {
    let ((x1, y1), (x2, y2)) = (from, to);
    format!("<line class=\"{class}\" x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\"/>\n")
}

fn text(class: &str, (x, y): (u64, u64), anchor: &str, text: &str) -> String {
    format!("<text class=\"{class}\" x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{text}</text>\n")
}

/// Draws a bar for each range that contains times.
fn bars(class: &str, panel: u64, times: &[u64]) -> String {
    let mut path = String::new();
    for start in (0..END_MS).step_by(BAR_MS as usize) {
        let hits = count(times, start..start + BAR_MS);
        if hits > 0 {
            let (height, width) = (hits * HIT_HEIGHT, BAR_WIDTH - 1);
            // Writing to memory does not fail.
            let _ = write!(path, "M{} {}v-{height}h{width}v{height}z", x(start), y(panel, 0));
        }
    }
    format!("<path class=\"{class}\" d=\"{path}\"/>\n")
}

/// Number of times within the last `length`, at the end of each bar.
fn line(panel: u64, times: &[u64], length: u64) -> String {
    let mut path = format!("M{} {}", x(0), y(panel, 0));
    let mut last = 0;
    for end in (BAR_MS..=END_MS).step_by(BAR_MS as usize) {
        let hits = count(times, end.saturating_sub(length)..end);
        if hits != last {
            let _ = write!(path, "H{}V{}", x(end), y(panel, hits));
            last = hits;
        }
    }
    format!("<path class=\"line\" d=\"{path}H{}\"/>\n", x(END_MS))
}

/// Draws the panel of an algorithm.
fn panel(top: u64, algorithm: Algorithm) -> String {
    let admitted = admitted(algorithm);
    let (length, note) = match algorithm {
        Algorithm::Concurrency => {
            (REQUEST_MS, format!("at most {} in progress", max_within(&admitted, REQUEST_MS)))
        }
        _ => (
            WINDOW_MS,
            format!(
                "at most {} within 1 s, {} within 10 s",
                max_within(&admitted, 1_000),
                max_within(&admitted, WINDOW_MS)
            ),
        ),
    };
    let (right, bottom) = (LEFT + PLOT_WIDTH, y(top, 0));
    let mut svg = text("name", (LEFT, top - 8), "start", algorithm.name());
    svg += &text("", (right, top - 8), "end", &note);
    for edge in (WINDOW_MS..END_MS).step_by(WINDOW_MS as usize) {
        svg += &rule("edge", (x(edge), top), (x(edge), bottom));
    }
    svg += &bars("offered", top, &arrivals());
    svg += &bars("admitted", top, &admitted);
    svg += &rule("limit", (LEFT, y(top, LIMIT)), (right, y(top, LIMIT)));
    svg += &line(top, &admitted, length);
    svg += &rule("axis", (LEFT, bottom), (right, bottom));
    for hits in [0, LIMIT, 2 * LIMIT] {
        svg += &text("small", (LEFT - 6, y(top, hits) + 4), "end", &hits.to_string());
    }
    svg
}

fn legend() -> String {
    let mut svg = format!("<rect class=\"offered\" x=\"{LEFT}\" y=\"30\" width=\"12\" height=\"12\"/>\n");
    svg += &text("", (LEFT + 18, 40), "start", "requests in 250 ms");
    svg += &format!("<rect class=\"admitted\" x=\"{}\" y=\"30\" width=\"12\" height=\"12\"/>\n", LEFT + 150);
    svg += &text("", (LEFT + 168, 40), "start", "admitted");
    svg += &rule("line", (LEFT + 240, 36), (LEFT + 262, 36));
    svg += &text(
        "",
        (LEFT + 268, 40),
        "start",
        "admitted in the last 10 s; of concurrency, requests in progress",
    );
    svg += &rule("limit", (LEFT + 680, 36), (LEFT + 702, 36));
    svg + &text("", (LEFT + 708, 40), "start", "limit")
}

/// Draws the picture.
pub(crate) fn draw() -> String {
    let bottom = TOP + PANEL_HEIGHT * Algorithm::ALL.len() as u64 - PANEL_HEIGHT + PLOT_HEIGHT;
    let (width, height) = (LEFT + PLOT_WIDTH + 16, bottom + 40);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         role=\"img\" aria-labelledby=\"title desc\">\n"
    );
    svg += "<title id=\"title\">What each algorithm admits of the same traffic</title>\n";
    svg += "<desc id=\"desc\">The limit is 10 per 10 seconds. 20 requests come at 9.5 s, 20 more at 10 s, and 4 a \
            second from 14 s on.";
    for algorithm in Algorithm::ALL {
        let times = admitted(algorithm);
        let (short, long) = (max_within(&times, 1_000), max_within(&times, WINDOW_MS));
        let _ = write!(svg, " {}: at most {short} pass within 1 s, {long} within 10 s.", algorithm.name());
    }
    let _ = write!(svg, "</desc>\n<style>{STYLE}</style>\n");
    let _ = writeln!(svg, "<rect class=\"paper\" width=\"{width}\" height=\"{height}\"/>");
    svg += &text(
        "",
        (LEFT, 18),
        "start",
        "Limit: 10 in 10 s. 20 requests at 9.5 s, 20 at 10 s, 4 a second from 14 s on.",
    );
    svg += &legend();
    for (top, algorithm) in (TOP..).step_by(PANEL_HEIGHT as usize).zip(Algorithm::ALL) {
        svg += &panel(top, algorithm);
    }
    for second in (0..=END_MS).step_by(5_000) {
        svg += &text("small", (x(second), bottom + 16), "middle", &format!("{} s", second / 1_000));
    }
    svg += &text("small", (LEFT, bottom + 32), "start", "Vertical lines: edges of the fixed window.");
    svg + "</svg>\n"
}

#[allow(dead_code)] // A test uses the rest of this file.
fn main() {
    fs::create_dir_all(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs")).expect("writable");
    fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE), draw()).expect("writable");
    println!("{FILE} is written");
}
