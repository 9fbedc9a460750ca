//! The settings of a node.

mod place;

pub use place::{NoPlace, config_file, state_directory};
