//! Gathers facts from this host's kernel and files. What they mean is decided in [`crate::checks`].

mod clock;
mod directory;
mod kernel;
mod names;
mod network;
mod state;
mod timers;

pub use clock::kernel_clock;
pub use directory::try_directory;
pub use kernel::{Process, command_limits, packet_filter, port_holder, process_limits, tcp};
pub use names::{ask_servers, certificates, proxies};
pub use network::network;
pub use state::{examine_state, roster};
pub use timers::try_timers;
