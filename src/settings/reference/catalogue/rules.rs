//! Where its rules are.

use super::{
    Fate::{Always, NoEffect, Part, Same},
    Form::{Boolean, Text},
    Variable,
};

pub(super) const VARIABLES: [Variable; 8] = [
    Variable::new("RUNTIME_ROOT", "/srv/runtime_data/current", Text, Part("config")),
    Variable::new("RUNTIME_SUBDIRECTORY", "", Text, Part("config")),
    Variable::new("RUNTIME_APPDIRECTORY", "config", Text, Part("config")),
    Variable::new(
        "RUNTIME_IGNOREDOTFILES",
        "false",
        Boolean,
        Always("files that begin with a dot are not read"),
    ),
    Variable::new(
        "RUNTIME_WATCH_ROOT",
        "true",
        Boolean,
        Always("changes of links, of files and of directories are all noticed"),
    ),
    Variable::new("MERGE_DOMAIN_CONFIG", "false", Boolean, Same("merge-domains")),
    Variable::new("FORCE_START_WITHOUT_INITIAL_CONFIG", "false", Boolean, Same("start-without-rules")),
    Variable::new(
        "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED",
        "false",
        Boolean,
        NoEffect("nothing is ready before rules are loaded; rules without any domain will do"),
    ),
];
