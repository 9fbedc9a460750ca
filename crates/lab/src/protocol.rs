//! The protocol of a lab's Unix socket: one request and one reply per connection.
//!
//! Each is a line of JSON. File descriptors are passed with it (`SCM_RIGHTS`): a host's namespaces with the reply to
//! [`Request::Enter`], the output file with [`Request::Pcap`]. Only the owner can access the socket's directory.

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

/// The most descriptors with one message: five namespaces.
const MAX_FDS: usize = 5;
/// Longest request, bytes: names and one change.
pub const MAX_REQUEST: usize = 64 << 10;
/// Longest reply, bytes: the statistics of thousands of links with their series.
pub const MAX_REPLY: usize = 1 << 30;

/// A client's request to a lab.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Describe the network's names and addresses.
    Describe,
    /// Get the namespaces of this host.
    Enter(String),
    /// Change a link, or one direction of it.
    Set {
        /// `core`, `core.fwd` or `core.rev`.
        link: String,
        change: LinkChange,
    },
    /// The statistics of the lab and its links.
    Stats {
        /// Whether to include the time series of every link.
        series: bool,
    },
    /// Restart the measurement windows of lateness and CPU pressure.
    ResetStats,
    /// Write the packets that enter a link to the descriptor passed with this, until the connection closes.
    Pcap(String),
    /// End the lab.
    Stop,
}

/// The lab's reply.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The request was carried out.
    Done,
    /// The description of the network.
    Description(Description),
    /// The host's user, PID, mount, network and UTS namespaces are passed with this, in that order.
    Namespaces,
    /// The statistics of the lab and its links.
    Stats(Box<Stats>),
    /// The request failed; the error message.
    Error(String),
}

/// A lab's topology, names and addresses.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Description {
    /// The topology as TOML.
    pub topology: String,
    /// The set-up time, seconds.
    pub setup_s: f64,
    /// Each host with its addresses.
    pub hosts: Vec<(String, Vec<std::net::IpAddr>)>,
    /// The names of all links, one for each direction.
    pub links: Vec<String>,
}

/// Sends `message` as a line, with `fds` passed along with its first byte.
///
/// # Errors
/// If the peer has closed the connection.
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
        return Err(io::Error::other("too many file descriptors for one message"));
    }
    let mut sent = sendmsg(stream, &[IoSlice::new(&line)], &mut ancillary, SendFlags::NOSIGNAL)?;
    let mut none = SendAncillaryBuffer::default();
    while sent < line.len() {
        sent += sendmsg(stream, &[IoSlice::new(&line[sent..])], &mut none, SendFlags::NOSIGNAL)?;
    }
    Ok(())
}

/// Receives one line of at most `max` bytes and the descriptors passed with it.
///
/// # Errors
/// If the connection ends within the line, or the line is longer or not a `T`.
pub fn receive<T: DeserializeOwned>(
    stream: &UnixStream,
    max: usize,
) -> io::Result<(T, Vec<OwnedFd>)> {
    let (mut line, mut fds) = (Vec::new(), Vec::new());
    let mut buffer = vec![0; 64 << 10];
    while line.last() != Some(&b'\n') {
        let n = receive_some(stream, &mut buffer, &mut fds)?;
        if n == 0 || line.len() + n > max {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the lab closed the connection",
            ));
        }
        line.extend_from_slice(&buffer[..n]);
    }
    Ok((serde_json::from_slice(&line)?, fds))
}

/// The number of waiting bytes that belong to this line; the next line is left for the next call.
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
