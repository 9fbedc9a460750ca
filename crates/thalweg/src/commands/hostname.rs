//! Defaults for this host's name and address.

use anyhow::Context as _;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use thalweg_mesh::member_name;
use thalweg_wire::mesh::PORT;
use thalweg_wire::{Destination, mesh::Name};

/// The host's own name up to the first dot, in the mesh's alphabet.
///
/// # Errors
/// If no valid character is left; the message names the option.
pub fn name() -> anyhow::Result<Name> {
    let uname = rustix::system::uname();
    let own = uname.nodename().to_string_lossy();
    member_name(&own).with_context(|| {
        format!(
            "the host's name `{own}` cannot be a member's name; give --name \
                                  NAME"
        )
    })
}

/// The address that this host's default route leaves by, with [`PORT`].
///
/// # Errors
/// If there is no such route; the message names the option.
pub fn address() -> anyhow::Result<Destination> {
    // TEST-NET-1 and the documentation prefix, where no host exists. `connect` on a datagram socket sends nothing; it
    // only asks the kernel for the route.
    let ways = [("0.0.0.0:0", "192.0.2.1:9"), ("[::]:0", "[2001:db8::1]:9")];
    let own = ways.into_iter().find_map(|(from, to)| own_address(from, to));
    let own = own.context("this host has no default route; give --address HOST:PORT")?;
    Ok(SocketAddr::new(own, PORT).into())
}

fn own_address(from: &str, to: &str) -> Option<IpAddr> {
    let socket = UdpSocket::bind(from).ok()?;
    socket.connect(to).ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_loopback() && !ip.is_unspecified()).then_some(ip)
}
