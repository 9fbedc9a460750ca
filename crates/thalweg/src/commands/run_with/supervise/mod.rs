//! Redirects the connections of an unmodified program to the proxy without root, by seccomp's user notifications.
//! Covers static programs and child processes.
//!
//! Not intercepted: connections by io_uring, by `sendto` with `MSG_FASTOPEN`, and of 32-bit programs under a 64-bit
//! kernel. They go as the kernel sends them. Interception is a convenience, not a confinement.

mod redirect;
mod seccomp;

use anyhow::{Context as _, anyhow};
use redirect::HeldConnect;
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
        SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg,
        sendmsg, socketpair,
    },
    pipe::{PipeFlags, pipe_with},
};
use seccomp::{Answer, Held};
use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    thread::{self, JoinHandle},
};
use thalweg_proxy::{RedirectDestinations, RedirectPorts};
use tokio::process::Command;

/// Where connections are redirected to.
#[derive(Clone, Debug)]
pub struct RedirectTargets {
    /// The proxy's ports.
    pub ports: RedirectPorts,
    /// Tells the proxy the destinations.
    pub meant: RedirectDestinations,
}

/// A command that will be supervised once it is started.
pub struct Prepared {
    ours: OwnedFd,
}

impl Prepared {
    /// Makes the command's process hold its connections before it becomes the program.
    ///
    /// # Errors
    /// As the system reports them.
    pub fn new(command: &mut Command) -> anyhow::Result<Self> {
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let (ours, its) = socketpair(AddressFamily::UNIX, kind, flags, None)
            .context("cannot create a socket pair")?;
        in_child(command, move || pass(its.as_fd(), seccomp::hold_connects()?.as_fd()));
        Ok(Self { ours })
    }

    /// Supervises the command, which has been started.
    ///
    /// # Errors
    /// As the system reports them.
    pub fn supervise(self, targets: RedirectTargets) -> anyhow::Result<Supervisor> {
        let listener = take(self.ours.as_fd()).context("cannot supervise the command")?;
        let (ended, end) = pipe_with(PipeFlags::CLOEXEC)?;
        let work = move || serve(&listener, &ended, &targets);
        let thread = thread::Builder::new().name("connects".to_owned()).spawn(work)?;
        Ok(Supervisor { end: Some(end), thread: Some(thread) })
    }
}

#[expect(unsafe_code, reason = "what runs between fork and exec may not allocate")]
fn in_child(command: &mut Command, work: impl FnMut() -> io::Result<()> + Send + Sync + 'static) {
    // SAFETY: `work` makes three system calls with data created before the fork, and allocates nothing.
    unsafe { command.pre_exec(work) };
}

/// Sends a descriptor to the other end (unix(7), `SCM_RIGHTS`).
fn pass(by: BorrowedFd<'_>, descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let given = [descriptor];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    beside.push(SendAncillaryMessage::ScmRights(&given));
    sendmsg(by, &[IoSlice::new(&[0])], &mut beside, SendFlags::empty())?;
    Ok(())
}

fn take(by: BorrowedFd<'_>) -> anyhow::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let (mut beside, mut byte) = (RecvAncillaryBuffer::new(&mut space), [0]);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(by, &mut [IoSliceMut::new(&mut byte)], &mut beside, flags)?;
    debug_assert!(!received.flags.contains(ReturnFlags::CTRUNC));
    let descriptors = beside.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    descriptors.ok_or_else(|| anyhow!("the command's process did not pass a descriptor"))
}

/// Answers a program's connections until it is dropped; later connections fail in the program.
pub struct Supervisor {
    end: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        // Closes the pipe, which wakes the thread.
        self.end.take();
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

/// Serves until all programs have ended, or the other end of `ended` is closed.
fn serve(listener: &OwnedFd, ended: &OwnedFd, targets: &RedirectTargets) {
    loop {
        let mut looked = [PollFd::new(listener, PollFlags::IN), PollFd::new(ended, PollFlags::IN)];
        match poll(&mut looked, None) {
            Err(Errno::INTR) => continue,
            Err(_) => return,
            Ok(_) => {}
        }
        let [calls, end] = looked.map(|of| of.revents());
        if !end.is_empty() || calls.contains(PollFlags::HUP) {
            return;
        }
        match seccomp::receive(listener.as_fd()) {
            Ok(held) => seccomp::answer(listener, &held, decide(listener.as_fd(), &held, targets)),
            // The program was killed meanwhile.
            Err(Errno::NOENT | Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

fn decide(listener: BorrowedFd<'_>, held: &Held, targets: &RedirectTargets) -> Answer {
    let wish = HeldConnect::read(held);
    // If the call no longer waits, the data read may be another program's.
    match wish.filter(|_| seccomp::still_waits(listener, held)) {
        Some(wish) => wish.lead(targets.ports, &targets.meant),
        None => Answer::Go,
    }
}
