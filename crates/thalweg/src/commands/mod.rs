//! The commands, one file each.

pub mod demo;
pub mod experiment;
pub mod get;
pub mod lab;
pub mod relay;
