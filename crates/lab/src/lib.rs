//! An emulated Internet for real processes on one machine.
//!
//! In goes a topology; out come network namespaces joined by links, in which any program runs,
//! and the truth about what each link did.
//!
//! ```text
//! topology (TOML) ─► resolved ─► thalweg-lab: namespaces, TUN devices, a clock
//!                                    │ packets of real processes    ▲
//!                                    ▼                              │ when they are due
//!                                emu: rate, queue, delay, loss ─────┘ ─► stats, records of links
//! tests, experiments ─► client ── protocol (a Unix socket) ─► thalweg-lab
//! ```
//!
//! Layers, from the bottom: [`topology`] (what a network is, as text and resolved),
//! [`emu`] (the pure, time-driven emulation of it), then the shell of the program
//! `thalweg-lab` that gives it real namespaces, TUN devices and a clock, and
//! [`client`], the API that tests and experiments use over [`protocol`].

#![deny(clippy::print_stdout, clippy::print_stderr, reason = "they panic: see thalweg_console")]

pub mod client;
pub mod discover;
pub mod emu;
pub mod pressure;
pub mod protocol;
pub mod stats;
pub mod topology;
