//! The commands, one file each, and what they share.

pub mod config;
pub mod demo;
pub mod experiment;
pub mod get;
pub mod here;
pub mod history;
pub mod hostname;
pub mod init;
pub mod join;
pub mod lab;
pub mod load;
pub mod node;
pub mod oracle_inside;
mod oracle_metrics;
pub mod paths;
pub mod proxy;
pub mod relay;
pub mod remembered;
pub mod renewal;
pub mod revoke;
pub mod roster;
pub mod run_with;
pub mod signals;
pub mod sim;
pub mod status;
pub mod text;
pub mod token;
