//! Datagrams of probe trains: sealed, timestamped by the kernel, and sent with exact gaps (MGRP §2.1).

mod hops;
mod pace;
mod replay;
mod seal;
mod stamped;

pub use hops::{Expired, HopSocket};
pub use pace::{Pacer, now};
pub use replay::ReplayWindow;
pub use seal::{Opener, SECRET, Sealer, UnsealError};
pub use stamped::{Stamped, prepare, receive, too_long};
