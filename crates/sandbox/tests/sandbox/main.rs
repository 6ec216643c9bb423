//! The built-in sandbox as a process of its own, against a server of the test's: the protocol, the walls of a room,
//! its limits, its end.

#![cfg(target_os = "linux")]

mod world;

mod archives;
mod cancelling;
mod escapes;
mod leaks;
mod limits;
mod protocol;
mod python;
mod start;
