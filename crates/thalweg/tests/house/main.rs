//! Rules of the source tree that no lint can check: which crate may import which, what pure code must not name, which
//! texts are forbidden, and that documents mention only files that exist.
//! One file shows all texts that users read.

mod commands;
mod docs;
mod faults;
mod floors;
mod links;
mod messages;
mod purity;
mod texts;
mod tidy;
mod tree;
mod types;
