//! Bans, played by clients against the stores and real servers.

mod client;
mod populations;
mod storm;
mod storm_through_envoy;

use fastrand::Rng;
use tollgate::ban::{BanMode, BanParameters};

use crate::support::prelude::*;
