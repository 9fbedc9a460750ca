//! Queries to the kernel about single sockets (sock_diag(7)).

use crate::netlink::invalid;
use netlink_packet_core::{NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_sock_diag::{
    SockDiagMessage,
    constants::{AF_INET, AF_INET6, IPPROTO_TCP},
    inet::{ExtensionFlags, InetRequest, InetResponseHeader, SocketId, StateFlags},
};
use netlink_sys::{Socket, SocketAddr as Netlink, protocols::NETLINK_SOCK_DIAG};
use std::{
    io,
    net::{IpAddr, SocketAddr},
};

/// Matches any cookie.
const ANY: [u8; 8] = [0xff; 8];

/// The inode of this network namespace's TCP socket between these addresses. The kernel looks up only this socket,
/// while `/proc/net/tcp` walks through all sockets of the machine.
///
/// # Errors
/// The kernel's error: `NotFound` if there is none, others if it does not answer such queries.
pub fn socket_inode(local: SocketAddr, far: SocketAddr) -> io::Result<u64> {
    Ok(ask(local, far)?.inode.into())
}

/// The user whose process holds this socket; found as [`socket_inode`].
///
/// # Errors
/// As [`socket_inode`]; also `NotFound` if no process holds the socket any more, because the kernel then reports user
/// 0.
pub fn socket_user(local: SocketAddr, far: SocketAddr) -> io::Result<u32> {
    let found = ask(local, far)?;
    if found.inode == 0 { Err(io::ErrorKind::NotFound.into()) } else { Ok(found.uid) }
}

fn ask(local: SocketAddr, far: SocketAddr) -> io::Result<InetResponseHeader> {
    let (local, far) = (canonical(local), canonical(far));
    let mut socket = Socket::new(NETLINK_SOCK_DIAG)?;
    socket.bind_auto()?;
    socket.connect(&Netlink::new(0, 0))?;
    socket.send(&bytes(question(local, far)), 0)?;
    let answer = socket.recv_from_full()?.0;
    let answer = NetlinkMessage::<SockDiagMessage>::deserialize(&answer).map_err(invalid)?;
    match answer.payload {
        // Without a connection the kernel answers with a listener at the local address.
        NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(found))
            if !is_between(&found.header.socket_id, local, far) =>
        {
            Err(io::ErrorKind::NotFound.into())
        }
        NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(found)) => Ok(found.header),
        NetlinkPayload::Error(e) => Err(e.to_io()),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Whether a socket belongs to the connection between these addresses.
fn is_between(found: &SocketId, local: SocketAddr, far: SocketAddr) -> bool {
    let is = |ip: IpAddr, port, at: SocketAddr| canonical(SocketAddr::new(ip, port)) == at;
    is(found.source_address, found.source_port, local)
        && is(found.destination_address, found.destination_port, far)
}

/// Converts mapped addresses to IPv4, by which the kernel finds sockets of both families.
fn canonical(at: SocketAddr) -> SocketAddr {
    SocketAddr::new(at.ip().to_canonical(), at.port())
}

fn question(local: SocketAddr, far: SocketAddr) -> InetRequest {
    InetRequest {
        family: if local.is_ipv4() { AF_INET } else { AF_INET6 },
        protocol: IPPROTO_TCP,
        extensions: ExtensionFlags::empty(),
        states: StateFlags::all(),
        socket_id: SocketId {
            source_port: local.port(),
            destination_port: far.port(),
            source_address: local.ip(),
            destination_address: far.ip(),
            interface_id: 0,
            cookie: ANY,
        },
    }
}

fn bytes(question: InetRequest) -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST;
    let question = NetlinkPayload::from(SockDiagMessage::InetRequest(question));
    let mut message = NetlinkMessage::new(header, question);
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        net::{TcpListener, TcpStream},
        os::{fd::AsRawFd as _, unix::fs::MetadataExt as _},
    };

    #[test]
    fn a_socket_is_found_by_its_two_addresses() {
        for listen in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(listen) else {
                eprintln!("skipped in part: no {listen} here");
                continue;
            };
            let far = listener.local_addr().unwrap();
            let near = TcpStream::connect(far).unwrap();
            let link = format!("/proc/self/fd/{}", near.as_raw_fd());
            let inode = std::fs::metadata(link).unwrap().ino();
            let local = near.local_addr().unwrap();
            assert_eq!(socket_inode(local, far).unwrap(), inode, "{listen}");
            assert_eq!(
                socket_user(local, far).unwrap(),
                std::fs::metadata("/proc/self").unwrap().uid()
            );
            let other = SocketAddr::new(far.ip(), local.port());
            let none = socket_inode(local, other).unwrap_err();
            assert_eq!(none.kind(), io::ErrorKind::NotFound, "{listen}");
        }
    }

    #[test]
    fn a_listener_is_no_end_of_a_connection() {
        let listener = TcpListener::bind("0.0.0.0:0").unwrap();
        let local = SocketAddr::new([127, 0, 0, 1].into(), listener.local_addr().unwrap().port());
        let far = SocketAddr::from(([203, 0, 113, 7], 45_671));
        let none = socket_user(local, far).unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::NotFound);
    }
}
