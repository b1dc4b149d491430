mod faulty_runs;
mod mishaps;
mod sim;
mod study;
