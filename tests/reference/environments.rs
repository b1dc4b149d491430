//! Environments of the reference.
