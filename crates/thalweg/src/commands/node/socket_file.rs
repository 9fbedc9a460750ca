//! The file of a local socket.

use std::{fs, path::PathBuf};

/// The file of a socket on which this process listens; removed on drop.
pub struct SocketFile(pub PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // The file may be gone already; if it cannot be removed, the next start removes it.
        _ = fs::remove_file(&self.0);
    }
}
