//! The checks: facts in, findings out. Pure: no check reads the system or a clock.

pub mod certificates;
pub mod clock;
pub mod disk;
pub mod limits;
pub mod membership;
pub mod mtu;
pub mod names;
pub mod nat;
pub mod network;
pub mod path;
pub mod port;
pub mod settings;
pub mod state;
pub mod tcp;
pub mod timers;
