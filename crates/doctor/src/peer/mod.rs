//! Checks that need another member: its end, and the asking end.

mod client;
mod service;

pub use client::{Examination, Examiner, PeerError};
pub use service::DoctorService;
