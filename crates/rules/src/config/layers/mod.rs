//! Layers of a configuration: limits that take keys from those above them, and files that are laid over others.
//!
//! Both work on [`raw`](super::raw), before it is compiled, so that a merged limit means the same as one that states all of
//! its keys.

mod inherit;
mod merge;
mod overlay;
mod pattern;
mod stated;
#[cfg(test)]
mod tests;

pub use self::overlay::{Laid, Overlay, OverlaySlot};
pub(super) use self::{inherit::resolve, stated::stated_values};
