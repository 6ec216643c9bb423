//! The built-in sandbox: the complete other end of the sandbox protocol. It knows only the wire: an envelope comes
//! in over HTTP, lines go out. The agent's loop runs here; what the agent does runs in a room of its own, shut off
//! from the machine, that is gone with the run.

mod agent_loop;
mod assets;
mod emit;
mod envelope;
mod frame;
mod inside;
mod layers;
mod plan;
mod prompt;
mod results;
mod room;
mod run;
mod serve;
mod tools;

pub use inside::child;
pub use layers::{Isolation, Layer, Refused};
pub use serve::{Options, Sandbox, from_stdin};
