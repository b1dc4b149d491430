//! Scripts of the shared state that stand in several files, composed of them in the order of their dependencies.

/// Operations on versions, lists, switches, bans and heartbeats; `lua/control/entry.lua` documents keys and arguments.
pub const CONTROL: &str = concat!(
    include_str!("../../../lua/control/entry.lua"),
    include_str!("../../../lua/control/audit.lua"),
    include_str!("../../../lua/control/versions.lua"),
    include_str!("../../../lua/control/runtime.lua"),
    include_str!("../../../lua/control/automatic.lua"),
    include_str!("../../../lua/control/bans.lua"),
    include_str!("../../../lua/control/instances.lua"),
    include_str!("../../../lua/control/regions.lua"),
    include_str!("../../../lua/control/dispatch.lua"),
);

/// Operations on overrides; `lua/overrides/entry.lua` documents keys and arguments.
pub const OVERRIDES: &str = concat!(
    include_str!("../../../lua/overrides/entry.lua"),
    include_str!("../../../lua/control/audit.lua"),
    include_str!("../../../lua/overrides/entries.lua"),
    include_str!("../../../lua/overrides/changes.lua"),
    include_str!("../../../lua/overrides/pages.lua"),
    include_str!("../../../lua/overrides/restoration.lua"),
    include_str!("../../../lua/overrides/copies.lua"),
    include_str!("../../../lua/overrides/dispatch.lua"),
);
