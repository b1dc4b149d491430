//! Settings of the detection of unusual traffic.

use clap::{Args, ValueEnum};

use crate::anomalies::Sensitivity;

#[derive(Args, Debug)]
#[command(next_help_heading = "Events")]
pub(super) struct AnomalyFlags {
    /// Detection of unusual traffic of rules and domains, by its sensitivity: `low`, `medium`, `high` (more false alarms),
    /// or `off`.
    #[arg(long, value_name = "SENSITIVITY", default_value = "medium", hide_possible_values = true)]
    anomalies: Detection,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Detection {
    Off,
    Low,
    Medium,
    High,
}

impl AnomalyFlags {
    pub(super) const fn resolve(self) -> Option<Sensitivity> {
        match self.anomalies {
            Detection::Off => None,
            Detection::Low => Some(Sensitivity::Low),
            Detection::Medium => Some(Sensitivity::Medium),
            Detection::High => Some(Sensitivity::High),
        }
    }
}
