//! Creates a host: its network, mount and UTS namespaces, its devices, addresses and routes.

use super::{
    names,
    netlink::{Netlink, Route},
    sys, tun,
};
use anyhow::{Context, Result, anyhow};
use rustix::{
    mount::{MountFlags, mount},
    thread::UnshareFlags,
};
use std::{
    fs::{self, File},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket},
    os::fd::OwnedFd,
    thread,
};
use thalweg_lab::topology::{HostPlan, InterfacePlan, Resolved};

/// The main routing table.
const MAIN: u32 = 254;
/// Routing table 100 + k has the routes of packets from interface k's address.
const PER_INTERFACE: u32 = 100;
/// The largest TCP buffers, bytes: two BDPs of 1 Gbit/s at 250 ms, so that buffers are never the limit.
const TCP_BUFFER_MAX: u32 = 64 << 20;

/// A host that is set up.
pub struct RunningHost {
    /// Mount, network and UTS namespaces.
    pub namespaces: [OwnedFd; 3],
    /// One device per interface, in the order of the plan.
    pub devices: Vec<OwnedFd>,
    /// The socket at which the lab answers this host's DNS questions.
    pub resolver: Option<UdpSocket>,
}

/// Creates one host of the network.
///
/// Namespaces belong to threads, so a temporary thread creates them. The lab itself never leaves its own namespaces,
/// because an ordinary user could not enter them again.
pub fn create(network: &Resolved, host: &HostPlan) -> Result<RunningHost> {
    let made = thread::scope(|scope| scope.spawn(|| set_up(network, host)).join());
    made.unwrap_or_else(|_| Err(anyhow!("the thread that sets it up panicked")))
        .with_context(|| format!("host `{}`", host.name))
}

fn set_up(network: &Resolved, host: &HostPlan) -> Result<RunningHost> {
    sys::unshare(UnshareFlags::NEWNET | UnshareFlags::NEWNS | UnshareFlags::NEWUTS)
        .context("cannot create namespaces")?;
    rustix::system::sethostname(host.name.as_bytes())?;
    // Some containers forbid it; only tools that read /sys/class/net need it.
    let _shown = mount("sysfs", "/sys", "sysfs", MountFlags::RDONLY, None);
    set_kernel_parameters()?;
    let mut netlink = Netlink::open()?;
    netlink.bring_up(index_of("lo")?, 1_000)?;
    let mut devices = Vec::new();
    for interface in &host.interfaces {
        devices.push(attach(network, &network.interfaces[*interface], &mut netlink)?);
    }
    if host.interfaces.len() > 1 {
        for interface in &host.interfaces {
            route_by_source(network, &network.interfaces[*interface], &mut netlink)?;
        }
    }
    let resolver = UdpSocket::bind((names::RESOLVER, 53)).ok();
    let namespace = |kind| File::open(format!("/proc/thread-self/ns/{kind}")).map(OwnedFd::from);
    let namespaces = [namespace("mnt")?, namespace("net")?, namespace("uts")?];
    Ok(RunningHost { namespaces, devices, resolver })
}

/// Sets the kernel parameters of a fresh network namespace that accurate measurements need.
fn set_kernel_parameters() -> Result<()> {
    let buffers = format!("4096 131072 {TCP_BUFFER_MAX}");
    let write_buffers = format!("4096 65536 {TCP_BUFFER_MAX}");
    for (key, value) in [
        ("ipv4/tcp_no_metrics_save", "1"), // otherwise TCP metrics of one run would affect the next
        ("ipv4/tcp_rmem", &buffers),
        ("ipv4/tcp_wmem", &write_buffers),
        ("ipv4/conf/all/rp_filter", "0"), // multihomed hosts answer on any interface
        ("ipv4/conf/default/rp_filter", "0"),
        ("ipv4/ip_unprivileged_port_start", "0"),
    ] {
        fs::write(format!("/proc/sys/net/{key}"), value)
            .with_context(|| format!("cannot set net/{key}"))?;
    }
    // Allow unprivileged ping for all groups or, in a user namespace, for its only group.
    let ping = "/proc/sys/net/ipv4/ping_group_range";
    fs::write(ping, "0 2147483647")
        .or_else(|_| fs::write(ping, "0 0"))
        .context("cannot allow `ping` for all users")?;
    // Turn off router solicitations and automatic addresses, if there is IPv6.
    for (key, value) in [("accept_ra", "0"), ("addr_gen_mode", "1"), ("router_solicitations", "0")]
    {
        let _no_ipv6 = fs::write(format!("/proc/sys/net/ipv6/conf/default/{key}"), value);
    }
    Ok(())
}

fn index_of(device: &str) -> Result<u32> {
    rustix::net::netdevice::name_to_index(socket()?, device)
        .with_context(|| format!("there is no device {device}"))
}

fn socket() -> Result<OwnedFd> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    Ok(socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?)
}

/// Creates interface k as device `wanK`, with its addresses and its routes to every network of the lab.
fn attach(network: &Resolved, plan: &InterfacePlan, netlink: &mut Netlink) -> Result<OwnedFd> {
    let name = format!("wan{}", plan.index);
    let device = tun::create(&name)?;
    let index = index_of(&name)?;
    netlink.bring_up(index, tun::QUEUE_PACKETS)?;
    let metric = |own: bool| if own { 10 } else { 1_000 + plan.index as u32 };
    for (address, prefix, own, whole) in families(plan) {
        netlink.add_address(index, address, prefix)?;
        for (to, prefix, metric) in [(own, prefix, metric(true)), (whole.0, whole.1, metric(false))]
        {
            netlink.add_route(&Route {
                to,
                prefix,
                device: index,
                metric,
                source: address,
                table: MAIN,
                congestion: network.congestion.as_deref(),
            })?;
        }
    }
    Ok(device)
}

/// For IPv4 and IPv6: address, prefix length, its network, and the network and prefix length of the whole lab.
fn families(plan: &InterfacePlan) -> [(IpAddr, u8, IpAddr, (IpAddr, u8)); 2] {
    let (v4, v6) = (IpAddr::V4(plan.v4), IpAddr::V6(plan.v6));
    let all_v4 = (IpAddr::V4(Ipv4Addr::new(10, 0, 0, 0)), 8);
    let all_v6 = (IpAddr::V6(Ipv6Addr::new(0xfd54, 0, 0, 0, 0, 0, 0, 0)), 16);
    [(v4, 16, to_network(v4, 16), all_v4), (v6, 64, to_network(v6, 64), all_v6)]
}

fn to_network(address: IpAddr, prefix: u8) -> IpAddr {
    match address {
        IpAddr::V4(a) => IpAddr::V4((u32::from(a) & (u32::MAX << (32 - prefix))).into()),
        IpAddr::V6(a) => IpAddr::V6((u128::from(a) & (u128::MAX << (128 - prefix))).into()),
    }
}

/// Routes packets from an interface's addresses out of that interface.
fn route_by_source(network: &Resolved, plan: &InterfacePlan, netlink: &mut Netlink) -> Result<()> {
    let table = PER_INTERFACE + plan.index as u32;
    let device = index_of(&format!("wan{}", plan.index))?;
    for (source, _, _, (to, prefix)) in families(plan) {
        let congestion = network.congestion.as_deref();
        netlink.add_route(&Route { to, prefix, device, metric: 10, source, table, congestion })?;
        netlink.add_rule(source, table)?;
    }
    Ok(())
}
