//! The daemon of a host: its configuration, who may come in by which door, and the local API.
//!
//! ```text
//! settings file ─► config ─► Settings of each service
//! TCP, one port ─► daemon::door  who is it? which protocol? ─► relay, probe, files, cast, bond, dropbox, oracle
//! local socket  ─► daemon::local_api ─► status, control
//! ```

pub mod config;
pub mod daemon;
