//! A stream as HLS (RFC 8216) with fragmented MP4, for browsers and other players.
//!
//! ```text
//! frames, losses ─► Packager ─┬► Window: the newest segments in memory ─► serve: HTTP, player page
//!                             └► Directory: the same as files
//! ```

mod directory;
mod packager;
mod server;
mod viewers;
mod window;

pub use directory::{Directory, DirectoryError};
pub use packager::{Packager, Settings, StartNumbers, Status, Update};
pub use server::serve;
pub use window::Window;
