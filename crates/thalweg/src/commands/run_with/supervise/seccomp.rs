//! seccomp's user notifications (seccomp_unotify(2)): a program is held in `connect` until its supervisor has answered.
//! It needs no privilege, and applies to all programs that the program starts.
#![expect(unsafe_code, reason = "no library has these calls of the kernel")]

use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, sock_filter, sock_fprog};
use rustix::{
    io::Errno,
    ioctl::{Setter, Updater, opcode},
};
use std::{
    io,
    mem::{MaybeUninit, offset_of},
    os::fd::{AsFd, BorrowedFd, FromRawFd as _, OwnedFd},
};

/// The architecture's calling convention (linux/audit.h). Programs of other kinds (32 bits) are not held.
#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xc000_00b7;
#[cfg(target_arch = "riscv64")]
const ARCH: u32 = 0xc000_00f3;

/// The group of seccomp's ioctl requests (linux/seccomp.h).
const GROUP: u8 = b'!';
const RECEIVE: u32 = opcode::read_write::<libc::seccomp_notif>(GROUP, 0);
const SEND: u32 = opcode::read_write::<libc::seccomp_notif_resp>(GROUP, 1);
const IS_VALID: u32 = opcode::write::<u64>(GROUP, 2);

/// A program's call that waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    id: u64,
    /// The thread that called.
    pub thread: u32,
    /// The arguments of the call.
    pub arguments: [u64; 6],
}

/// The answer to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The kernel performs the call.
    Go,
    /// The call has succeeded.
    Done,
    /// The call has failed.
    Failed(Errno),
}

/// Holds every `connect` of this process and all its descendants, from now on and forever. Returns the descriptor at
/// which the calls are received. Runs between `fork` and `exec`, so it allocates nothing.
///
/// # Errors
/// As the kernel reports them: a kernel before 5.19, or a sandbox that forbids it.
pub fn hold_connects() -> io::Result<OwnedFd> {
    let filter = program();
    let whole = sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER
        // Only a fatal signal interrupts a call that the supervisor has received.
        | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    rustix::thread::set_no_new_privs(true)?;
    // SAFETY: the kernel reads the program, which outlives the call, and opens a descriptor that nothing else owns.
    unsafe {
        let mode = libc::SECCOMP_SET_MODE_FILTER;
        let opened = libc::syscall(libc::SYS_seccomp, mode, flags, &raw const whole);
        if opened < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(opened as i32))
    }
}

/// A filter that reports `connect` of this architecture and allows all other calls.
fn program() -> [sock_filter; 6] {
    let step = |code: u32, jt, jf, k| sock_filter { code: code as u16, jt, jf, k };
    let load = |at: usize| step(BPF_LD | BPF_W | BPF_ABS, 0, 0, at as u32);
    let unless = |value, over| step(BPF_JMP | BPF_JEQ | BPF_K, 0, over, value);
    let result = |value| step(BPF_RET | BPF_K, 0, 0, value);
    [
        load(offset_of!(libc::seccomp_data, arch)),
        unless(ARCH, 3),
        load(offset_of!(libc::seccomp_data, nr)),
        unless(libc::SYS_connect as u32, 1),
        result(libc::SECCOMP_RET_USER_NOTIF),
        result(libc::SECCOMP_RET_ALLOW),
    ]
}

/// Waits for the next call.
///
/// # Errors
/// [`Errno::NOENT`] if its program has just ended: try again.
pub fn receive(listener: BorrowedFd<'_>) -> rustix::io::Result<Held> {
    // SAFETY: all its fields are numbers; the kernel wants them 0.
    let mut notification: libc::seccomp_notif = unsafe { MaybeUninit::zeroed().assume_init() };
    // SAFETY: the kernel writes one `seccomp_notif`.
    unsafe { rustix::ioctl::ioctl(listener, Updater::<RECEIVE, _>::new(&mut notification))? };
    Ok(Held { id: notification.id, thread: notification.pid, arguments: notification.data.args })
}

/// Whether the call still waits. If so, everything looked up before by its thread's number was of that thread.
pub fn still_waits(listener: BorrowedFd<'_>, held: &Held) -> bool {
    // SAFETY: the kernel reads one `u64`.
    unsafe { rustix::ioctl::ioctl(listener, Setter::<IS_VALID, _>::new(held.id)) }.is_ok()
}

/// Answers the call. If its program has ended, the answer is discarded.
pub fn answer(listener: impl AsFd, held: &Held, answer: Answer) {
    let (error, flags) = match answer {
        Answer::Go => (0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32),
        Answer::Done => (0, 0),
        Answer::Failed(errno) => (-errno.raw_os_error(), 0),
    };
    let mut response = libc::seccomp_notif_resp { id: held.id, val: 0, error, flags };
    // SAFETY: the kernel reads one `seccomp_notif_resp`.
    _ = unsafe { rustix::ioctl::ioctl(listener, Updater::<SEND, _>::new(&mut response)) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of the requests are those in linux/seccomp.h.
    #[test]
    fn request_numbers_are_those_of_the_kernel() {
        assert_eq!([RECEIVE, SEND, IS_VALID], [0xc050_2100, 0xc018_2101, 0x4008_2102]);
    }
}
