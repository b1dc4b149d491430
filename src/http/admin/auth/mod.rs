//! Authentication and roles of the admin port.

mod authenticate;
mod metrics;
mod roles;
mod token_file;
mod tokens;

pub(super) use self::{
    authenticate::{Authenticator, authenticate},
    roles::{Caller, Role},
};
pub use self::{
    metrics::METRICS,
    tokens::{TokenError, Tokens},
};
