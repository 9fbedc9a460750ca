//! Measurements between members: bulk flows, probe trains, and packets that ride in the padding of trains (MGRP).
//!
//! Inputs are the oracle's orders, trains and packets; outputs are reports, arrival times of probes and delivered
//! packets.
//!
//! ```text
//! oracle's orders ─► prober   one bulk TCP flow at a time     ─► what both ends saw ─► oracle
//! `measure`       ─► trains   UDP probe trains, sealed        ─► thalweg_measure's estimators
//! programs        ─► carrier  TUN device ─► riders in trains  ─► the member's device
//! settings        ─► overlay  keeps the legs in use measured  ─► trains
//! a node's socket ◄─ client   trains asked of the daemon by a program of its host
//! ```

pub mod carrier;
pub mod client;
pub mod overlay;
pub mod prober;
pub mod trains;
