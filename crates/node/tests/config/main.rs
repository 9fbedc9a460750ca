//! The settings' file: the example, mistakes, and what is said of them.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

mod mistakes;
mod texts;
mod values;
