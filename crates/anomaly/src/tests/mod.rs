mod properties;
mod synthetic;
mod traffic;
