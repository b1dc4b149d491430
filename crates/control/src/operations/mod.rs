//! Operations of operators, and of the tasks of an instance, on the records of the store.

mod bans;
mod records;
