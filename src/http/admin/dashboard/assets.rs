//! Files of the dashboard. A file that is not listed here is not served; a test compares the list with the folder.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// A file of the dashboard.
#[derive(Debug)]
pub(super) struct Asset {
    /// Path below `/assets/`.
    pub(super) name: &'static str,
    pub(super) text: &'static str,
}

impl Asset {
    /// Value of the `ETag` header.
    pub(super) fn etag(&self) -> String {
        let mut hasher = DefaultHasher::new();
        self.text.hash(&mut hasher);
        format!("\"{:016x}\"", hasher.finish())
    }

    /// Value of the `Content-Type` header, by the file extension.
    pub(super) fn content_type(&self) -> &'static str {
        match self.name.rsplit('.').next() {
            Some("html") => "text/html; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("js") => "text/javascript; charset=utf-8",
            Some("svg") => "image/svg+xml",
            _ => "text/plain; charset=utf-8",
        }
    }
}

macro_rules! assets {
    ($($name:literal),* $(,)?) => { [$(Asset { name: $name, text: include_str!($name) }),*] };
}

/// The document.
pub(super) const PAGE: Asset = Asset { name: "index.html", text: include_str!("index.html") };

/// Every other file.
pub(super) static ASSETS: [Asset; 78] = assets![
    "icon.svg",
    "css/base.css",
    "css/chart.css",
    "css/editor.css",
    "css/layout.css",
    "css/parts.css",
    "css/table.css",
    "css/tokens.css",
    "js/api.js",
    "js/author.js",
    "js/changed_lines.js",
    "js/chart.js",
    "js/code_field.js",
    "js/controls.js",
    "js/descriptor.js",
    "js/dialog.js",
    "js/diff_view.js",
    "js/dom.js",
    "js/draft.js",
    "js/early_theme.js",
    "js/format.js",
    "js/frame.js",
    "js/highlight.js",
    "js/links.js",
    "js/locate.js",
    "js/main.js",
    "js/merge.js",
    "js/messages.js",
    "js/nav_counts.js",
    "js/observable.js",
    "js/poll.js",
    "js/routes.js",
    "js/rule_rates.js",
    "js/scale.js",
    "js/server_clock.js",
    "js/session.js",
    "js/statistics.js",
    "js/table.js",
    "js/theme.js",
    "js/token.js",
    "js/validator.js",
    "js/views/apply_bar.js",
    "js/views/apply_dialog.js",
    "js/views/audit.js",
    "js/views/automatic.js",
    "js/views/bans.js",
    "js/views/candidates.js",
    "js/views/dry_run.js",
    "js/views/dry_run_result.js",
    "js/views/editor.js",
    "js/views/editor_files.js",
    "js/views/emergency_dialog.js",
    "js/views/events.js",
    "js/views/force.js",
    "js/views/instances.js",
    "js/views/list_dialog.js",
    "js/views/lists.js",
    "js/views/locate_notice.js",
    "js/views/name_dialog.js",
    "js/views/origin.js",
    "js/views/override_dialog.js",
    "js/views/overview.js",
    "js/views/problems.js",
    "js/views/rebase.js",
    "js/views/rebase_notice.js",
    "js/views/regions.js",
    "js/views/rollout_notice.js",
    "js/views/rule_cells.js",
    "js/views/rules.js",
    "js/views/sign_in.js",
    "js/views/source_notice.js",
    "js/views/switch_dialog.js",
    "js/views/talker_table.js",
    "js/views/talkers.js",
    "js/views/top_keys.js",
    "js/views/top_rules.js",
    "js/views/version_dialogs.js",
    "js/views/versions.js",
];
