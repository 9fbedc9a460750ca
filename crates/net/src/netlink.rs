//! Requests to the kernel's routing subsystem (rtnetlink), each on a socket of its own.

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use std::io;

/// Lists all objects of the kind that `question` names, in this thread's network namespace.
///
/// # Errors
/// The kernel's error, or `InvalidData` if its answer cannot be parsed.
pub(crate) fn dump(question: RouteNetlinkMessage) -> io::Result<Vec<RouteNetlinkMessage>> {
    let socket = asked(question, NLM_F_REQUEST | NLM_F_DUMP)?;
    let mut found = Vec::new();
    while !read(&socket.recv_from_full()?.0, &mut found)? {}
    Ok(found)
}

/// The kernel's answer to a `question` that has a single one.
///
/// # Errors
/// The kernel's error, or `InvalidData` if its answer cannot be parsed.
pub(crate) fn ask(question: RouteNetlinkMessage) -> io::Result<RouteNetlinkMessage> {
    let socket = asked(question, NLM_F_REQUEST)?;
    let mut found = Vec::new();
    read(&socket.recv_from_full()?.0, &mut found)?;
    found.pop().ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Makes the kernel change something, in this thread's network namespace.
///
/// # Errors
/// If the kernel refuses.
pub(crate) fn change(wanted: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
    let socket = asked(wanted, NLM_F_REQUEST | NLM_F_ACK | flags)?;
    read(&socket.recv_from_full()?.0, &mut Vec::new()).map(drop)
}

fn asked(question: RouteNetlinkMessage, flags: u16) -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let mut header = NetlinkHeader::default();
    header.flags = flags;
    let mut message = NetlinkMessage::new(header, NetlinkPayload::from(question));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    Ok(socket)
}

/// Parses one datagram of an answer. Returns whether it was the last.
fn read(mut answer: &[u8], found: &mut Vec<RouteNetlinkMessage>) -> io::Result<bool> {
    while !answer.is_empty() {
        let message =
            NetlinkMessage::<RouteNetlinkMessage>::deserialize(answer).map_err(invalid)?;
        // Messages are aligned to 4 bytes; the last may lack its padding.
        let length = (message.header.length as usize).next_multiple_of(4).max(4);
        answer = answer.get(length..).unwrap_or_default();
        match message.payload {
            NetlinkPayload::Done(_) => return Ok(true),
            NetlinkPayload::Error(e) if e.code.is_some() => return Err(e.to_io()),
            NetlinkPayload::InnerMessage(inner) => found.push(inner),
            _ => {}
        }
    }
    Ok(false)
}

/// The error of an answer that cannot be parsed.
pub(crate) fn invalid(why: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_string())
}
