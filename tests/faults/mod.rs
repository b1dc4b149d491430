//! Effects of faults on callers: faults of Redis, of the network to it, and overload.
//!
//! Each scenario is run in a short form by a test of its own, which checks outcomes but no times. `tests/faults/run.sh`
//! runs all of them at full length, and writes `tests/faults/RESULTS.md`.

mod load;
mod cluster;
mod connections;
mod memory;
mod overload;
mod random;
mod samples;
mod sentinel;
mod standalone;
mod table;
mod frames;
mod messages;
mod resets;
mod harness;

use std::cell::{Cell, RefCell};
use std::fmt::{self, Display};
use std::{ops::Range, rc::Rc};

use bytes::{BufMut as _, Bytes};
use fastrand::Rng;

use self::harness::{Findings, Harness, Profile, Times, names};
use self::load::{ClosedLoop, OpenLoop, Plan, Tally};
use self::messages::{for_names, framed};
use self::samples::{By, Outcome, Sample, Samples, millis};
use self::table::ReportRow;
use crate::support::prelude::*;
use crate::support::proxy::{Direction, Proxy, Way};
