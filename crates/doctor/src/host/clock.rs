//! What the kernel says of its clock.
#![expect(unsafe_code, reason = "adjtimex takes a raw pointer, and no library wraps it")]

use crate::checks::clock::KernelClock;
use std::{io, time::Duration};

/// The kernel's judgement of its clock (adjtimex(2)); reads only.
///
/// # Errors
/// Why the kernel does not tell.
pub fn kernel_clock() -> Result<KernelClock, String> {
    // SAFETY: all fields are integers, for which zeros are valid; no `modes` bit means that the call only reads.
    let mut state: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a live, exclusive `timex`.
    let code = unsafe { libc::adjtimex(&mut state) };
    if code < 0 {
        return Err(format!("adjtimex: {}", io::Error::last_os_error()));
    }
    let synchronised = code != libc::TIME_ERROR && state.status & libc::STA_UNSYNC == 0;
    // `maxerror` is in microseconds.
    let error = Duration::from_micros(u64::try_from(state.maxerror).unwrap_or(0));
    Ok(KernelClock { synchronised, error })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_kernel_answers() {
        assert!(super::kernel_clock().is_ok());
    }
}
