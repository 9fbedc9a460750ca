//! The oracle as its callers see it: requests over HTTP, files on a disk that fails.

mod api;
mod harness;
mod join;
mod roster;
mod storage;
mod strangers;
