//! An emulated Internet for real processes on one machine.
//!
//! A lab turns a topology into network namespaces joined by links, in which any program runs, and records what happened
//! on each link.
//!
//! ```text
//! topology (TOML) ─► resolved ─► thalweg-lab: namespaces, TUN devices, a clock
//!                                    │ packets of real processes    ▲
//!                                    ▼                              │ when they are due
//!                                emu: rate, queue, delay, loss ─────┘ ─► stats, records of links
//! tests, experiments ─► client ── protocol (a Unix socket) ─► thalweg-lab
//! ```
//!
//! Layers, from the bottom: [`topology`] (the description of a network, as text and resolved), [`emu`] (the pure,
//! time-driven emulation), the shell of the program `thalweg-lab`, which adds real namespaces, TUN devices and a clock,
//! and [`client`], the API of tests and experiments, which speaks [`protocol`].

#![deny(clippy::print_stdout, clippy::print_stderr, reason = "they panic: see thalweg_console")]

pub mod client;
pub mod discover;
pub mod emu;
pub mod outputs;
pub mod port;
pub mod pressure;
pub mod protocol;
pub mod stats;
pub mod topology;
