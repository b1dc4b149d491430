//! Arguments of `tollgate top`, `tollgate events`, `tollgate candidates` and `tollgate recommend`.

use clap::Args;

use crate::settings::parsers::whole;

/// Query of top talkers.
#[derive(Args, Clone, Debug)]
pub struct TopQuery {
    /// Domain. Default: all.
    #[arg(long, value_name = "NAME")]
    pub domain: Option<String>,
    /// Maximum number of keys of each table.
    #[arg(long, value_name = "COUNT", default_value = "10", value_parser = |text: &str| whole::<u16>(text, 1..=100))]
    pub limit: u16,
    /// Only the instance that answers.
    #[arg(long)]
    pub instance: bool,
}

/// Query of events.
#[derive(Args, Clone, Debug)]
pub struct EventsQuery {
    /// Maximum number of events.
    #[arg(long, value_name = "COUNT", default_value = "20", value_parser = |text: &str| whole::<u16>(text, 1..=1000))]
    pub limit: u16,
}

/// Query about rules.
#[derive(Args, Clone, Debug)]
pub struct RuleQuery {
    /// Domain. Default: all.
    #[arg(long, value_name = "NAME")]
    pub domain: Option<String>,
    /// Path of one rule, as in `/rlconfig` and metrics. Default: all.
    #[arg(long, value_name = "PATH")]
    pub rule: Option<String>,
}
