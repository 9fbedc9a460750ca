//! Probe trains between members (MGRP §2): sent with their gaps, and timestamped by the receiving kernel.
//!
//! ```text
//! tool (thalweg_measure::estimators)
//!   ↓ Train          ↑ Flight
//! Session ── control: a channel of the protocol `probe` ──→ Trains, at the other member
//!   └────── datagrams: UDP, sealed under the channel's keys ──→ Endpoint
//! ```
//!
//! A train that this host, or the one that is to send it, cannot send truthfully is refused before any byte leaves
//! ([`thalweg_measure::train::Calibration`]). Whoever sends charges its own budget; whoever receives sends nothing
//! but answers on the channel. Datagrams go to the address that the channel leads to, and no other: a datagram's sender can be
//! forged, and nobody is to have any sent to a third host.

mod calibrate;
mod carry;
mod departed;
mod endpoint;
mod error;
mod fly;
mod opening;
mod payer;
mod published;
mod riders;
mod run;
mod serve;
mod service;
mod session;

pub use calibrate::calibrate;
pub use carry::Carrying;
pub use departed::Departed;
pub use endpoint::{Came, Endpoint, Refused};
pub use error::SessionError;
pub use opening::{OpenError, open};
pub use payer::Payer;
pub use riders::{Attached, Carries, Outlet, Riders, Riding};
pub use run::{Cost, Event, Flies, MeasureError, Measured, Way, run};
pub use serve::Trains;
pub use service::{Service, words};
pub use session::{Session, Terms};
