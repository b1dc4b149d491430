//! Cost of the parts of a decision: `cargo bench`.
//!
//! Whole decisions, with the gRPC stack and Redis, are measured by `benches/compare.sh`.

#![allow(clippy::arithmetic_side_effects, clippy::expect_used, clippy::indexing_slicing, clippy::unwrap_used)]

mod algorithms;
mod keys;
mod lists;
mod matching;
mod memory;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    divan::main();
}
