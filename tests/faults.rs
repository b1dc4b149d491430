//! What callers notice of faults: of Redis, of the way to it, and of too much load.
//!
//! Each scenario is run in a short form by a test of its own, which judges outcomes and no times. `tests/faults/run.sh`
//! runs all of them at full length, and writes `tests/faults/RESULTS.md`.

mod cluster;
mod counted;
mod crowd;
mod flood;
mod form;
mod load;
mod memory;
mod overload;
mod random;
mod requests;
mod row;
mod samples;
mod sentinel;
mod server;
mod table;
mod way;
mod windows;
mod wire;
mod world;
