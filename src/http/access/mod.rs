//! Who may ask the admin port for what.

mod author;
mod authenticate;
mod caller;
mod holders;
mod tokens;

pub use self::tokens::{TokenError, Tokens};
pub(super) use self::{
    authenticate::{Gate, authenticate},
    caller::{Caller, Role},
};
