//! Everything that needs real servers or the whole program. The servers are started by the tests themselves;
//! one that is missing is a failure, not a skip.

mod support;

mod contract;
mod differential;
