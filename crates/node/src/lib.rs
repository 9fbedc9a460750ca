//! The daemon of a host: its configuration, its one port, and the API for its owner.
//!
//! Inputs are the settings file and connections; outputs are channels passed to the services that they are for, status
//! and metrics.
//!
//! ```text
//! settings file ─► config ─► Settings of each service
//! TCP, one port ─► daemon::mesh_port: which member? which protocol? ─► relay, probe, files, cast,
//!                                                                      bond, dropbox, oracle
//! local socket, loopback ─► daemon::api ─► status, jobs, control, the page
//! ```

pub mod config;
pub mod daemon;
