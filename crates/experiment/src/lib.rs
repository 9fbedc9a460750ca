//! Runs experiments: one TOML plan per claim.
//!
//! A run of a plan produces rounds in a journal, one JSON object, the results of checks, a table and plots.
//!
//! ```text
//! plan (TOML) ─► library ─► plan ─► schedule ─► run: arms in turn, under measured conditions
//!                                                  │ rounds
//!                     table, plot ◄─ report ◄─ journal (a file; an interrupted run resumes)
//!                                      ▲
//!              validity, evaluate ─────┘ is the run valid, and does the claim hold?
//! ```
//!
//! A [`plan`] specifies what is compared and what must hold. [`run`] executes it round by round, all arms in turn,
//! under conditions that it measures itself, and stores each finished round in a [`journal`]. [`report`] builds the
//! JSON object, [`validity`] and [`evaluate`] judge it, [`table`] and [`plot`] present it. Only [`run`] starts programs
//! that are measured; [`library`] reads plans, [`machine`] inspects the machine and the checkout, [`freshness`]
//! tells how old a result is, and [`journal`], [`table`] and [`plot`] read or write the files of results. The rest is plain data.
//!
//! docs/experiments.md is the reference of plans and results.

#![deny(clippy::print_stdout, clippy::print_stderr, reason = "they panic: see thalweg_console")]

pub mod error;
pub mod evaluate;
pub mod freshness;
pub mod journal;
pub mod library;
pub mod machine;
pub mod pattern;
pub mod plan;
pub mod plot;
pub mod record;
pub mod report;
pub mod run;
pub mod schedule;
pub mod summary;
pub mod table;
pub mod template;
pub mod validity;

pub use error::{ExperimentError, Result};
pub use library::run_embedded;
