//! Collecting files from many nodes to this host: the destination pulls, and owns the job.
//!
//! Source: Cheng et al., *Large-scale Data Collection: a Coordinated Approach* (INFOCOM 2004); the
//! plans are in `plan::collection`, the messages in `wire::object`, the serving end in [`crate::files`].
//!
//! ```text
//! listings ─► landing: what is missing ─► Work ─► executor: fluid, slotted ─► Land ─► files
//!                                          ▲         │ pieces that failed
//!                                          └─────────┘
//! ```

mod inventory;
mod land;
pub mod landing;
mod method;
mod overlay;
mod work;

pub use inventory::{FileNo, Inventory, Piece, Wanted};
pub use land::{Land, LandError};
pub use method::Method;
pub use overlay::Overlay;
pub use work::Work;
