mod faulty_runs;
mod mishaps;
mod names;
mod sim;
mod study;
mod transitions;
