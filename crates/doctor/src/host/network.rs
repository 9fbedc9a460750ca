//! Interfaces and routes, from the kernel.

use crate::checks::network::NetworkFacts;
use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};
use thalweg_net::{InterfaceWish, interface_for, internet_interfaces, survey};

/// Addresses of DNS root servers, which every route to the internet covers. Nothing is sent to them.
const INTERNET: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(193, 0, 14, 129)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0x7fd, 0, 0, 0, 0, 0, 1)),
];

/// The interfaces, those among them that transfers use under these wishes, and the routes.
///
/// # Errors
/// If the kernel gives no list (rtnetlink).
pub fn network(wish: impl Fn(&str) -> InterfaceWish) -> io::Result<NetworkFacts> {
    let found = survey()?;
    let used = internet_interfaces(&found.usable, wish).into_iter().map(|i| i.name).collect();
    let [routes_v4, routes_v6] = INTERNET.map(|ip| interface_for(ip).is_ok());
    Ok(NetworkFacts { usable: found.usable, used, lacking: found.lacking, routes_v4, routes_v6 })
}
