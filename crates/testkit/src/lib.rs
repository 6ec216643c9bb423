//! The real parts and the fakes that tests of several crates share. Only ever a dev-dependency.

pub mod agent;
pub mod cluster;
pub mod form;
pub mod gate;
pub mod hostile;
pub mod llama;
pub mod postgres;
pub mod process;
pub mod s3;
pub mod sandbox;
pub mod server;
