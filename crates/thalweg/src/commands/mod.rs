//! The commands, one file each, and what they share.

pub mod demo;
pub mod experiment;
pub mod get;
pub mod lab;
pub mod relay;
pub mod signals;
