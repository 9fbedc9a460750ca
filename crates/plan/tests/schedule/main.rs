//! Tests of what is measured next, and of which nodes may measure now.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

mod biased;
mod completion;
mod dispatch;
mod hinge;
mod liars;
mod random;
mod thrifty;
mod upkeep;
mod world;
