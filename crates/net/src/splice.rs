//! Pipes for `splice(2)`, which moves bytes between sockets without copying them.
//!
//! A pipe costs two descriptors and kernel memory, so a bounded pool holds the pipes, and a pipe is taken only while
//! bytes are in it. A caller that gets no pipe copies (decision 0026).

use parking_lot::{Mutex, MutexGuard};
use rustix::{
    io::Errno,
    pipe::{PipeFlags, SpliceFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with, splice},
    thread::CapabilitySet,
};
use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

/// The size of a large pipe: 256 slots, the most for an unprivileged user.
///
/// A slot holds one fragment of a received segment: 32 kB on loopback, little more than one packet's 1.4 kB on most
/// networks. Fewer and larger turns cost less: with 100 connections on loopback 1 MiB took half of the processor time
/// of 256 kB, and less than half of that of the kernel's default, 64 kB.
const LARGE: usize = 1024 * 1024;

/// The size of a small pipe, the kernel's default. Smaller pipes are not worth their system calls. A user beyond
/// `fs.pipe-user-pages-soft` gets pipes of two slots (pipe(7)).
const SMALL: usize = 64 * 1024;

/// The large pipes of a pool, if the kernel counts them against the user. If all receivers are slow, more pipes are in
/// use than there are threads that move bytes.
const LARGE_PIPES: usize = 24;

/// The pipes of a process. 24 large and 104 small ones take 31 MiB, half of the kernel's default allowance for a user
/// (`fs.pipe-user-pages-soft`, 64 MiB); their 256 descriptors are few compared with those of the connections that use
/// them. A process without that limit (`CAP_SYS_RESOURCE`) has 128 large ones: 128 MiB, and only while receivers are
/// slow.
const PROCESS_PIPES: usize = 128;

/// The turns that are copied after the kernel has refused a pipe, before it is asked again. Asking costs five system
/// calls, which a busy relay would otherwise pay on every turn.
const TURNS_AFTER_REFUSAL: usize = 256;

const FLAGS: SpliceFlags = SpliceFlags::MOVE.union(SpliceFlags::NONBLOCK);

/// A pool of pipes that are lent one at a time. All threads share it.
#[derive(Debug)]
pub struct PipePool {
    most: usize,
    /// Lent and idle pipes.
    open: AtomicUsize,
    /// The kernel or a sandbox does not support `splice` between sockets and pipes.
    useless: AtomicBool,
    /// How many more requests are refused before the kernel is asked again.
    resting: AtomicUsize,
    /// Idle pipes. The large ones are at the back, where pipes are taken from.
    idle: Mutex<VecDeque<Pipe>>,
}

/// Both ends of a pipe, and the number of bytes in it.
#[derive(Debug)]
struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    large: bool,
    held: usize,
}

/// A pipe from a [`PipePool`], empty when it is lent.
///
/// When dropped, an empty pipe returns to the pool; one with bytes in it is closed, and the bytes are lost.
#[derive(Debug)]
pub struct LentPipe<'a> {
    pool: &'a PipePool,
    /// `None` only during the drop.
    pipe: Option<Pipe>,
}

impl PipePool {
    /// Creates a pool of at most `most` pipes. Each pipe is created when it is first needed.
    pub const fn new(most: usize) -> Self {
        Self {
            most,
            open: AtomicUsize::new(0),
            useless: AtomicBool::new(false),
            resting: AtomicUsize::new(0),
            idle: Mutex::new(VecDeque::new()),
        }
    }

    /// The pool of this process: 128 pipes, because descriptors are limited per process and the kernel's allowance per
    /// user.
    pub fn of_process() -> &'static Self {
        static POOL: PipePool = PipePool::new(PROCESS_PIPES);
        &POOL
    }

    /// Lends an empty pipe; `None` if all are lent, or the kernel gives no useful one.
    pub fn lend(&self) -> Option<LentPipe<'_>> {
        if self.useless.load(Ordering::Relaxed) {
            return None;
        }
        let idle = self.idle().pop_back();
        let pipe = idle.or_else(|| self.make())?;
        Some(LentPipe { pool: self, pipe: Some(pipe) })
    }

    /// The number of open pipes, lent or idle.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// The number of lent pipes.
    pub fn lent(&self) -> usize {
        let idle = self.idle();
        self.open().saturating_sub(idle.len())
    }

    fn make(&self) -> Option<Pipe> {
        let less = |n: usize| n.checked_sub(1);
        if self.resting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok() {
            return None;
        }
        let before = self.open.fetch_add(1, Ordering::Relaxed);
        if before < self.most {
            match Pipe::new(before < LARGE_PIPES || unlimited()) {
                Some(pipe) => return Some(pipe),
                None => self.resting.store(TURNS_AFTER_REFUSAL, Ordering::Relaxed),
            }
        }
        self.open.fetch_sub(1, Ordering::Relaxed);
        None
    }

    fn take_back(&self, pipe: Pipe) {
        match (pipe.held, pipe.large) {
            (0, true) => self.idle().push_back(pipe),
            (0, false) => self.idle().push_front(pipe),
            _ => _ = self.open.fetch_sub(1, Ordering::Relaxed),
        }
    }

    fn idle(&self) -> MutexGuard<'_, VecDeque<Pipe>> {
        self.idle.lock()
    }
}

/// Whether the kernel does not count this process's pipes against a user's allowance (pipe(7)).
fn unlimited() -> bool {
    static UNLIMITED: OnceLock<bool> = OnceLock::new();
    *UNLIMITED.get_or_init(|| {
        let have = rustix::thread::capabilities(None);
        have.is_ok_and(|have| have.effective.contains(CapabilitySet::SYS_RESOURCE))
    })
}

impl Pipe {
    fn new(large: bool) -> Option<Self> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok()?;
        // If the kernel allows no larger pipe, its default size may suffice.
        let asked = if large { fcntl_setpipe_size(&write, LARGE) } else { Err(Errno::PERM) };
        let size = asked.or_else(|_| fcntl_getpipe_size(&write)).ok()?;
        (size >= SMALL).then_some(Self { read, write, large: size >= LARGE, held: 0 })
    }
}

/// The result of [`LentPipe::fill`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filled {
    /// The number of bytes taken, at least 1.
    Bytes(usize),
    /// The peer has ended its direction.
    Ended,
    /// This pipe cannot take from this socket, and the caller must copy. Nothing was taken.
    Refused,
}

impl LentPipe<'_> {
    /// The number of bytes in the pipe.
    pub fn held(&self) -> usize {
        self.pipe.as_ref().map_or(0, |pipe| pipe.held)
    }

    /// Takes at most `most` bytes that have arrived at `from`, into the *empty* pipe.
    ///
    /// # Errors
    /// `WouldBlock` if nothing has arrived; otherwise the socket's error.
    pub fn fill(&mut self, from: impl AsFd, most: usize) -> io::Result<Filled> {
        let Some(pipe) = self.pipe.as_mut().filter(|pipe| pipe.held == 0) else {
            return Ok(Filled::Refused);
        };
        match splice(from, None, &pipe.write, None, most, FLAGS) {
            Ok(0) => Ok(Filled::Ended),
            Ok(n) => {
                pipe.held = n;
                Ok(Filled::Bytes(n))
            }
            Err(Errno::INVAL | Errno::NOSYS | Errno::PERM) => {
                self.pool.useless.store(true, Ordering::Relaxed);
                Ok(Filled::Refused)
            }
            Err(e) => Err(e.into()),
        }
    }

    /// Writes to `to` as many bytes as it has room for. Returns their number.
    ///
    /// # Errors
    /// `WouldBlock` if there is no room; otherwise the socket's error.
    pub fn drain(&mut self, to: impl AsFd) -> io::Result<usize> {
        let Some(pipe) = self.pipe.as_mut().filter(|pipe| pipe.held > 0) else { return Ok(0) };
        match splice(&pipe.read, None, to, None, pipe.held, FLAGS)? {
            0 => Err(io::ErrorKind::WriteZero.into()),
            n => {
                pipe.held = pipe.held.saturating_sub(n);
                Ok(n)
            }
        }
    }
}

impl Drop for LentPipe<'_> {
    fn drop(&mut self) {
        if let Some(pipe) = self.pipe.take() {
            self.pool.take_back(pipe);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
    };

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    #[test]
    fn bytes_pass_from_socket_to_socket_and_so_does_the_end() {
        let ((mut client, near), (far, mut server)) = (pair(), pair());
        let pool = PipePool::new(1);
        client.write_all(b"through a pipe").unwrap();
        drop(client);
        let mut pipe = pool.lend().unwrap();
        // The socket blocks and the pipe does not: `fill` takes the bytes that have arrived, at most 7.
        assert_eq!(pipe.fill(&near, 7).unwrap(), Filled::Bytes(7));
        assert_eq!(pipe.fill(&near, 7).unwrap(), Filled::Refused, "it is not empty");
        assert_eq!((pipe.drain(&far).unwrap(), pipe.held()), (7, 0));
        assert_eq!(pipe.fill(&near, 100).unwrap(), Filled::Bytes(7));
        assert_eq!(pipe.drain(&far).unwrap(), 7);
        assert_eq!(pipe.fill(&near, 100).unwrap(), Filled::Ended);
        drop(far);
        let mut got = String::new();
        server.read_to_string(&mut got).unwrap();
        assert_eq!(got, "through a pipe");
    }

    #[test]
    fn nothing_there_and_no_room_are_would_block() {
        let ((client, near), (far, _server)) = (pair(), pair());
        near.set_nonblocking(true).unwrap();
        far.set_nonblocking(true).unwrap();
        let pool = PipePool::new(1);
        let mut pipe = pool.lend().unwrap();
        let nothing = pipe.fill(&near, 100).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        while (&far).write(&[0; 65536]).is_ok() {}
        (&client).write_all(b"stuck").unwrap();
        assert_eq!(pipe.fill(&near, 100).unwrap(), Filled::Bytes(5));
        let no_room = pipe.drain(&far).unwrap_err();
        assert_eq!((no_room.kind(), pipe.held()), (io::ErrorKind::WouldBlock, 5));
    }

    #[test]
    fn the_pool_lends_no_more_than_its_bound_and_reuses_only_empty_pipes() {
        let pool = PipePool::new(2);
        let (first, second) = (pool.lend().unwrap(), pool.lend().unwrap());
        assert!(pool.lend().is_none());
        drop(first);
        assert_eq!(pool.open(), 2, "an empty one is kept");
        let third = pool.lend().unwrap();
        assert_eq!(pool.open(), 2);
        drop((second, third));
        assert_eq!(pool.lent(), 0);

        let ((mut client, near), _other) = (pair(), ());
        client.write_all(b"somebody's secret").unwrap();
        let mut pipe = pool.lend().unwrap();
        assert_eq!(pipe.fill(&near, 100).unwrap(), Filled::Bytes(17));
        drop(pipe);
        assert_eq!(pool.open(), 1, "one with bytes in it is closed");
    }

    #[test]
    fn large_pipes_are_few_where_the_kernel_counts_them_and_taken_first() {
        let pool = PipePool::new(LARGE_PIPES + 2);
        let all: Vec<_> = std::iter::from_fn(|| pool.lend()).collect();
        let large = |lent: &LentPipe<'_>| lent.pipe.as_ref().unwrap().large;
        assert_eq!(all.len(), LARGE_PIPES + 2);
        let made = all.iter().filter(|pipe| large(pipe)).count();
        // An unprivileged user may have used up its allowance already.
        assert!(unlimited() || made <= LARGE_PIPES && !large(&all[LARGE_PIPES]), "{made}");
        assert!(!unlimited() || made == all.len(), "{made}");
        drop(all);
        assert!(pool.lend().is_some_and(|first| large(&first)) || made == 0);
    }

    #[test]
    fn a_descriptor_that_cannot_be_spliced_makes_the_pool_useless() {
        let directory = std::fs::File::open("/").unwrap();
        let pool = PipePool::new(2);
        let mut pipe = pool.lend().unwrap();
        assert_eq!(pipe.fill(&directory, 1).unwrap(), Filled::Refused);
        drop(pipe);
        assert!(pool.lend().is_none(), "nobody tries again");
    }
}
