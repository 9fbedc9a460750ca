//! Evidence on the disk of its owner.

use std::{io, path::Path, time::Duration};
use thalweg_base::durable;
use thalweg_net::Ed25519;
use thalweg_wire::bistro::{Evidence, Nonce};

/// The greatest file: a roster of thousands, and more.
const MAX_BYTES: usize = 16 << 20;

/// The longest wait for other processes that write files in the directory.
const TURN: Duration = Duration::from_secs(5);

/// Reads a file of evidence; `None` if there is none.
///
/// # Errors
/// The system's; `InvalidData` with the field that is wrong.
pub fn load_evidence(file: &Path) -> io::Result<Option<Evidence>> {
    let Some(bytes) = durable::read(file, MAX_BYTES)? else { return Ok(None) };
    let invalid = |e: String| io::Error::new(io::ErrorKind::InvalidData, e);
    let text = String::from_utf8(bytes).map_err(|e| invalid(format!("text: {e}")))?;
    Evidence::read(&text, &Ed25519).map(Some).map_err(|e| invalid(e.to_string()))
}

/// Writes it, durable, of mode 0600: it may hold a nonce.
///
/// # Errors
/// The system's.
pub fn save_evidence(file: &Path, evidence: &Evidence) -> io::Result<()> {
    durable::replace(file, evidence.to_string().as_bytes())
}

/// The same for files that several processes may write at a time.
///
/// # Errors
/// The system's.
pub fn save_evidence_in_turn(file: &Path, evidence: &Evidence) -> io::Result<()> {
    // Without the turn, as on a file system without locks, the file is saved all the same.
    let _turn = durable::turn_within(file, TURN);
    save_evidence(file, evidence)
}

/// Saves the evidence of a new submission; `false`, and no change, if the file exists: another process may have made it.
///
/// # Errors
/// The system's.
pub fn begin_evidence(file: &Path, evidence: &Evidence) -> io::Result<bool> {
    let _turn = durable::turn_within(file, TURN);
    if file.symlink_metadata().is_ok() {
        return Ok(false);
    }
    save_evidence(file, evidence).map(|()| true)
}

/// A new nonce, from the system's random generator.
///
/// # Errors
/// If the system gives no random bytes.
pub fn new_nonce() -> io::Result<Nonce> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(Nonce::from_bytes(bytes))
}

/// A random number from 0 to 1, for [`super::nearest`].
///
/// # Errors
/// If the system gives no random bytes.
pub fn new_draw() -> io::Result<f64> {
    let mut bytes = [0; 4];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(f64::from(u32::from_be_bytes(bytes)) / f64::from(u32::MAX))
}
