//! The daemon of a host: its configuration, its one port, and the local API.
//!
//! In go the settings file and connections; out come channels handed to the services that they are
//! for, status and metrics.
//!
//! ```text
//! settings file ─► config ─► Settings of each service
//! TCP, one port ─► daemon::door: which member? which protocol? ─► relay, probe, files, cast,
//!                                                                 bond, dropbox, oracle
//! local socket  ─► daemon::local_api ─► status, control
//! ```

pub mod config;
pub mod daemon;
