//! Stores evidence on the client's disk: the text file that proves a submission, with the commitment, its secrets, the
//! stamp, the receipt and the box's sheet ([`Evidence`]).

use std::{io, path::Path, time::Duration};
use thalweg_base::durable;
use thalweg_net::Ed25519;
use thalweg_wire::bistro::{Evidence, Nonce};

/// The maximum size of an evidence file, bytes: more than one with a sheet of thousands of nodes has.
const MAX_BYTES: usize = 16 << 20;

/// The maximum wait for the lock that processes take to write evidence in the directory.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// Reads an evidence file; `None` if it does not exist.
///
/// # Errors
/// Returns a system error, or `InvalidData` with the invalid field.
pub fn load_evidence(file: &Path) -> io::Result<Option<Evidence>> {
    let Some(bytes) = durable::read(file, MAX_BYTES)? else { return Ok(None) };
    let invalid = |e: String| io::Error::new(io::ErrorKind::InvalidData, e);
    let text = String::from_utf8(bytes).map_err(|e| invalid(format!("it is not text: {e}")))?;
    Evidence::read(&text, &Ed25519).map(Some).map_err(|e| invalid(e.to_string()))
}

/// Writes evidence durably with mode 0600, because it may contain the secrets of the commitment and of the encryption.
///
/// # Errors
/// Returns a system error.
pub fn save_evidence(file: &Path, evidence: &Evidence) -> io::Result<()> {
    durable::replace(file, evidence.to_string().as_bytes())
}

/// As `save_evidence`, under a lock, for a file that several processes may write.
///
/// # Errors
/// Returns a system error.
pub fn save_evidence_in_turn(file: &Path, evidence: &Evidence) -> io::Result<()> {
    // If the lock cannot be taken, as on a filesystem without locks, the file is saved anyway.
    let _turn = durable::lock_within(file, LOCK_TIMEOUT);
    save_evidence(file, evidence)
}

/// Saves the evidence of a new submission. Returns `false`, without a change, if the file exists, because another
/// process may have created it.
///
/// # Errors
/// Returns a system error.
pub fn begin_evidence(file: &Path, evidence: &Evidence) -> io::Result<bool> {
    let _turn = durable::lock_within(file, LOCK_TIMEOUT);
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

/// A random number from 0 to 1, for [`super::find_nodes`].
///
/// # Errors
/// If the system gives no random bytes.
pub fn new_draw() -> io::Result<f64> {
    let mut bytes = [0; 4];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(f64::from(u32::from_be_bytes(bytes)) / f64::from(u32::MAX))
}
