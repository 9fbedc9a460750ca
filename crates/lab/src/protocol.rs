//! What is said over a lab's Unix socket: one request and one reply a connection.
//!
//! Each is a line of JSON. Descriptors travel beside it (`SCM_RIGHTS`): a
//! host's namespaces with the reply to [`Request::Enter`], the file to write
//! to with [`Request::Pcap`]. The socket's directory is its owner's alone.

use crate::{stats::Stats, topology::LinkChange};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recv, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::{
        fd::{BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
};

/// Most descriptors beside one message: five namespaces.
const MAX_FDS: usize = 5;
/// Longest request, bytes: names and one change.
pub const MAX_REQUEST: usize = 64 << 10;
/// Longest reply, bytes: the statistics of thousands of links with their series.
pub const MAX_REPLY: usize = 1 << 30;

/// What a client asks of a lab.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// The network's names and addresses.
    Describe,
    /// The namespaces of this host.
    Enter(String),
    /// Change a link, or one half of it.
    Set {
        /// `core`, `core.fwd` or `core.rev`.
        link: String,
        /// What changes.
        change: LinkChange,
    },
    /// The state of everything.
    Stats {
        /// With the time series of every link.
        series: bool,
    },
    /// Start the windows of lateness and pressure anew.
    ResetStats,
    /// Write the packets of a link to the descriptor beside this, until the connection closes.
    Pcap(String),
    /// End the lab.
    Stop,
}

/// What the lab answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// Done.
    Done,
    /// What the network is.
    Description(Description),
    /// The host's user, pid, mount, net and UTS namespaces come beside this, in that order.
    Namespaces,
    /// The state of everything.
    Stats(Box<Stats>),
    /// It could not be done.
    Error(String),
}

/// A lab's names and addresses.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Description {
    /// The topology, as text.
    pub topology: String,
    /// Seconds it took to set up.
    pub setup_s: f64,
    /// Each host with its addresses.
    pub hosts: Vec<(String, Vec<std::net::IpAddr>)>,
    /// Each half of a link.
    pub links: Vec<String>,
}

/// Sends `message` as a line, with `fds` beside its first byte.
///
/// # Errors
/// When the other side is gone.
pub fn send<T: Serialize>(
    stream: &UnixStream,
    message: &T,
    fds: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::other("too many descriptors for one message"));
    }
    let mut sent = sendmsg(stream, &[IoSlice::new(&line)], &mut ancillary, SendFlags::NOSIGNAL)?;
    let mut none = SendAncillaryBuffer::default();
    while sent < line.len() {
        sent += sendmsg(stream, &[IoSlice::new(&line[sent..])], &mut none, SendFlags::NOSIGNAL)?;
    }
    Ok(())
}

/// Receives one line of at most `max` bytes and the descriptors beside it.
///
/// # Errors
/// When the connection ends within the line, or it is longer, or not a `T`.
pub fn receive<T: DeserializeOwned>(
    stream: &UnixStream,
    max: usize,
) -> io::Result<(T, Vec<OwnedFd>)> {
    let (mut line, mut fds) = (Vec::new(), Vec::new());
    let mut buffer = vec![0; 64 << 10];
    while line.last() != Some(&b'\n') {
        let n = receive_some(stream, &mut buffer, &mut fds)?;
        if n == 0 || line.len() + n > max {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the lab hung up"));
        }
        line.extend_from_slice(&buffer[..n]);
    }
    Ok((serde_json::from_slice(&line)?, fds))
}

/// How many of the bytes that wait belong to this line: the next is for the next call.
fn end_of_line(stream: &UnixStream, buffer: &mut [u8]) -> io::Result<usize> {
    let waiting = loop {
        match recv(stream, &mut *buffer, RecvFlags::PEEK) {
            Err(rustix::io::Errno::INTR) => {}
            done => break done?.0,
        }
    };
    let newline = buffer[..waiting].iter().position(|byte| *byte == b'\n');
    Ok(newline.map_or(waiting, |at| at + 1))
}

fn receive_some(
    stream: &UnixStream,
    buffer: &mut [u8],
    fds: &mut Vec<OwnedFd>,
) -> io::Result<usize> {
    let end = end_of_line(stream, buffer)?;
    let buffer = &mut buffer[..end];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let message = loop {
        match recvmsg(
            stream,
            &mut [IoSliceMut::new(buffer)],
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC,
        ) {
            Err(rustix::io::Errno::INTR) => {}
            done => break done?,
        }
    };
    for part in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = part {
            fds.extend(rights);
        }
    }
    Ok(message.bytes)
}
