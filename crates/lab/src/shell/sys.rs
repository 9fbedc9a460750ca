//! System calls for namespaces, processes and signals that have no safe wrapper.
//!
//! The lab's only other unsafe code is in `tool/sys.rs`: socket calls of its tools.
#![allow(unsafe_code)]

use rustix::{process::Pid, thread::UnshareFlags};
use std::{
    ffi::c_int,
    io,
    mem::MaybeUninit,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::process::CommandExt,
    },
    process::Command,
    sync::atomic::{AtomicI32, Ordering},
};

/// The side of a [`fork`] on which the caller is.
pub enum Fork {
    /// The new process.
    Child,
    /// The parent process, with the child's id.
    Parent(Pid),
}

fn checked(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Forks this process, which must have a single thread.
pub fn fork() -> io::Result<Fork> {
    debug_assert_eq!(std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count), 1);
    // SAFETY: the process has one thread, so the child may run any code.
    let pid = checked(unsafe { libc::fork() })?;
    Ok(Pid::from_raw(pid).map_or(Fork::Child, Fork::Parent))
}

/// Moves the calling thread into new namespaces of these kinds.
pub fn unshare(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: never called with FILES; the other flags share no descriptor table.
    debug_assert!(!flags.contains(UnshareFlags::FILES));
    Ok(unsafe { rustix::thread::unshare_unsafe(flags) }?)
}

/// Turns an open `/dev/net/tun` into a device named `name` in this network namespace that carries raw IP packets.
pub fn name_tun(device: &OwnedFd, name: &str) -> io::Result<()> {
    // SAFETY: `ifreq` is plain data, valid when zeroed.
    let mut request: libc::ifreq = unsafe { MaybeUninit::zeroed().assume_init() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes().take(15)) {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as i16;
    // SAFETY: TUNSETIFF reads and writes one `ifreq`.
    checked(unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })?;
    Ok(())
}

/// Gives the calling thread real-time priority, which only root may.
pub fn realtime(priority: i32) -> io::Result<()> {
    let parameter = libc::sched_param { sched_priority: priority };
    // SAFETY: reads one `sched_param`; 0 is the calling thread.
    checked(unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameter) })?;
    Ok(())
}

/// Requests a short time slice for the calling thread, so that an ordinary thread wakes up sooner (Linux ≥ 6.12).
pub fn short_slice(nanoseconds: u64) -> io::Result<()> {
    // struct sched_attr, version 1 (56 bytes); sched_runtime is its sixth word pair.
    let mut attributes = [0_u64; 7];
    attributes[0] = 56; // size; policy 0 = SCHED_OTHER
    attributes[3] = nanoseconds;
    // SAFETY: reads 56 bytes; 0 is the calling thread.
    checked(unsafe { libc::syscall(libc::SYS_sched_setattr, 0, attributes.as_ptr(), 0) } as c_int)?;
    Ok(())
}

/// The CPU time of the calling thread, seconds.
pub fn thread_cpu_seconds() -> f64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one `timespec`.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut t) };
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}

/// Makes this process the subreaper of its descendants: orphans among them become its children.
pub fn become_subreaper() -> io::Result<()> {
    // SAFETY: takes and returns plain integers.
    checked(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) })?;
    Ok(())
}

/// Makes the kernel send `signal` to this process when its parent dies.
pub fn die_with_parent(signal: c_int) -> io::Result<()> {
    // SAFETY: takes and returns plain integers.
    checked(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal, 0, 0, 0) })?;
    Ok(())
}

/// Makes the command's process start with no signal blocked, and die when this process dies.
pub fn bind_life(command: &mut Command) -> &mut Command {
    // SAFETY: both calls are async-signal-safe and allocate nothing.
    unsafe {
        command.pre_exec(|| {
            unblock_signals()?;
            die_with_parent(libc::SIGKILL)
        })
    }
}

/// Unblocks all signals, because blocked signals stay blocked across `exec`.
fn unblock_signals() -> io::Result<()> {
    // SAFETY: a zeroed set is overwritten by sigemptyset; the pointers are to a local.
    unsafe {
        let mut none: libc::sigset_t = MaybeUninit::zeroed().assume_init();
        libc::sigemptyset(&raw mut none);
        checked(libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut()))?;
    }
    Ok(())
}

static KILLED_ON_TERM: AtomicI32 = AtomicI32::new(0);

extern "C" fn kill_child(_: c_int) {
    // SAFETY: kill is async-signal-safe.
    unsafe { libc::kill(KILLED_ON_TERM.load(Ordering::Relaxed), libc::SIGKILL) };
}

/// Makes SIGTERM and SIGHUP kill `child`. With `interrupt`, SIGINT and SIGQUIT kill it too; otherwise they are ignored,
/// and left to the programs in the foreground.
pub fn kill_child_on_term(child: Pid, interrupt: bool) {
    KILLED_ON_TERM.store(child.as_raw_nonzero().get(), Ordering::Relaxed);
    let handler = kill_child as extern "C" fn(c_int) as libc::sighandler_t;
    let others = if interrupt { handler } else { libc::SIG_IGN };
    for (signal, action) in [
        (libc::SIGTERM, handler),
        (libc::SIGHUP, handler),
        (libc::SIGINT, others),
        (libc::SIGQUIT, others),
    ] {
        // SAFETY: the handler makes only async-signal-safe calls.
        unsafe { libc::signal(signal, action) };
    }
}

/// Makes the command start with no signal blocked and with the default action for SIGINT and SIGQUIT, which
/// [`kill_child_on_term`] may ignore.
pub fn heed_interrupt(command: &mut Command) -> &mut Command {
    // SAFETY: signal is async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGINT, libc::SIG_DFL);
            libc::signal(libc::SIGQUIT, libc::SIG_DFL);
            unblock_signals()
        })
    }
}

/// The signal that tells a monitor that its client has died.
pub fn client_died() -> c_int {
    libc::SIGRTMIN() + 3
}

/// Signals that are read one by one instead of being handled.
pub struct Signals(OwnedFd);

/// A received signal.
pub struct ReceivedSignal {
    /// The signal number.
    pub signal: c_int,
    /// Whether a process sent it, and not the terminal or the kernel.
    pub by_process: bool,
}

impl Signals {
    /// Blocks these signals for this thread and opens a descriptor that receives them.
    pub fn block(signals: &[c_int]) -> io::Result<Self> {
        // SAFETY: a zeroed set is overwritten by sigemptyset; all pointers are to locals.
        unsafe {
            let mut set: libc::sigset_t = MaybeUninit::zeroed().assume_init();
            libc::sigemptyset(&raw mut set);
            for signal in signals {
                libc::sigaddset(&raw mut set, *signal);
            }
            checked(libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()))?;
            let fd = checked(libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC))?;
            Ok(Self(OwnedFd::from_raw_fd(fd)))
        }
    }

    /// Waits for the next signal.
    pub fn next(&self) -> io::Result<ReceivedSignal> {
        // SAFETY: `signalfd_siginfo` is plain data, valid when zeroed.
        let mut info: libc::signalfd_siginfo = unsafe { MaybeUninit::zeroed().assume_init() };
        let size = size_of_val(&info);
        loop {
            // SAFETY: writes at most `size` bytes into `info`.
            let n = unsafe { libc::read(self.0.as_raw_fd(), (&raw mut info).cast(), size) };
            match checked(n as c_int) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
                Ok(_) => break,
            }
        }
        let by_process = [libc::SI_USER, libc::SI_TKILL, libc::SI_QUEUE].contains(&info.ssi_code);
        Ok(ReceivedSignal { signal: info.ssi_signo.cast_signed(), by_process })
    }
}

/// Sends a signal. It is not an error if the process has ended.
pub fn kill(pid: Pid, signal: c_int) {
    // SAFETY: takes plain integers.
    unsafe { libc::kill(pid.as_raw_nonzero().get(), signal) };
}

/// Finds a child that has ended and was not waited for, without reaping it.
pub fn dead_child() -> Option<Pid> {
    // SAFETY: `siginfo_t` is plain data, valid when zeroed; waitid writes one.
    let mut info: libc::siginfo_t = unsafe { MaybeUninit::zeroed().assume_init() };
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: as above; after success the field was set by waitid, or left at zero.
    let pid = unsafe {
        checked(libc::waitid(libc::P_ALL, 0, &raw mut info, options)).ok()?;
        info.si_pid()
    };
    Pid::from_raw(pid)
}
