//! The data plane: relay, files in the making, transfers.

mod accept;
mod patience;
mod shares;
mod talk;

pub mod bond;
pub mod budget;
pub mod carrier;
pub mod cast;
pub mod config;
pub mod daemon;
pub mod detours;
pub mod drop_box;
pub mod files;
pub mod gather;
pub mod get;
pub mod history;
pub mod interfaces;
pub mod job;
pub mod mesh;
pub mod overlay;
pub mod part;
pub mod prober;
pub mod proxy;
pub mod relay;
pub mod trains;
