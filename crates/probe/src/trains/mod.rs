//! Probe trains between members (MGRP §2): sent with exact gaps, and timestamped by the receiving kernel.
//!
//! ```text
//! tool (thalweg_measure::estimators)
//!   ↓ Train          ↑ Flight
//! Session ── control: a channel of the protocol `probe` ──→ Trains, at the other member
//!   └────── datagrams: UDP, sealed under the channel's keys ──→ Endpoint
//! ```
//!
//! A train that its sender cannot send truthfully is refused before any byte leaves
//! ([`thalweg_measure::train::Calibration`]). The sending node charges its own budget; the receiving node sends only
//! answers on the channel. Datagrams go to the channel's address and no other: the source of a datagram can be forged,
//! and must not direct traffic to a third host.

mod calibrate;
mod calibration_report;
mod carrier_session;
mod departed_train;
mod endpoint;
mod error;
mod opening;
mod payer;
mod probe_sender;
mod riders;
mod run;
mod serve;
mod service;
mod session;

pub use calibrate::calibrate;
pub use carrier_session::CarrierSession;
pub use departed_train::DepartedTrain;
pub use endpoint::{DropReason, Endpoint, ReceivedProbe};
pub use error::SessionError;
pub use opening::{OpenError, open};
pub use payer::Payer;
pub use riders::{AttachGuard, Boarding, Outlet, RiderCarrier, Riders};
pub use run::{Cost, Direction, MeasureError, Measured, TrainEvent, TrainSender, run};
pub use serve::Trains;
pub use service::{ProbeService, messages};
pub use session::{Session, Terms};
