//! The rules of the house that no lint can see, checked over the source tree:
//! which crate may import which, what pure code never names, what no file holds,
//! and that the texts still speak of files that exist.

mod commands;
mod faults;
mod floors;
mod purity;
mod texts;
mod tidy;
mod tree;
