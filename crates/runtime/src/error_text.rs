//! Texts of errors.

use std::error::Error;

/// Returns the text of an error, followed by those of its sources that it does not contain.
pub fn with_sources(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        let reason = error.to_string();
        if !text.contains(&reason) {
            text = format!("{text}: {reason}");
        }
        next = error.source();
    }
    text
}
