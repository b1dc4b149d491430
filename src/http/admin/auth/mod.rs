//! Authentication and roles of the admin port.

mod authenticate;
mod roles;
mod token_file;
mod tokens;

pub use self::tokens::{TokenError, Tokens};
pub(super) use self::{
    authenticate::{Authenticator, authenticate},
    roles::{Caller, Role},
};
