//! Finds what is wrong with a host, and says how to repair it.
//!
//! The input is facts about the host and its peers; the output is findings: evidence, meaning, remedy.
//!
//! ```text
//! kernel, files ─► host::*  ─► facts ─┐
//! other members ─► peer     ─► facts ─┼─► checks::* (pure) ─► Finding ─► Report
//! the command   ─► settings, roster ──┘
//! another member ─► DoctorService: hello, echo, dial back, its findings about the pair
//! ```
//!
//! Checks take only facts, so that each is tested without the fault; the gathering of facts decides nothing.

mod report;

pub mod checks;
pub mod host;
pub mod peer;

pub use report::Report;
pub use thalweg_wire::doctor::{Finding, Severity};
