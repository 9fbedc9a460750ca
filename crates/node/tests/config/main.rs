//! The settings file: the example, mistakes, and the errors that they cause.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

mod mistakes;
mod texts;
mod values;
