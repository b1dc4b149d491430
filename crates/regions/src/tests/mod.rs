mod faulty_runs;
mod mishaps;
mod sim;
mod study;
mod tables;
mod transitions;
