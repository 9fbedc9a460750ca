//! Resolves names to addresses: by the system's resolver, or over one interface only.
//!
//! The names of a path that is bound to an interface must not depend on another interface, and many networks direct
//! each client to a server near to *it*. So the first host on such a path is resolved by queries that leave by the same
//! interface. Other paths ask the system's resolver (`getaddrinfo`), as every other program does.
//!
//! A bound path asks in this order:
//! 1. /etc/hosts;
//! 2. the system's resolver, for names that no name server knows (of one label, `.local`, `localhost`), because it has
//!    search domains and multicast DNS. All other names are treated as absolute: search domains are not tried for them;
//! 3. the name servers of [`NameSources`], for AAAA and A at once;
//! 4. the system's resolver, if there is no such server or none answers; an error then says so. An answer that the name
//!    does not exist is final.

mod bound_sockets;
mod sources;

pub use sources::NameSources;

use crate::Cause;
use bound_sockets::BoundSockets;
use hickory_resolver::{
    Resolver,
    config::{
        ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig,
        ResolverOpts, ServerOrderingStrategy,
    },
    net::{DnsError, NetError},
    proto::{op::ResponseCode, rr::Name},
};
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    num::NonZeroU32,
    sync::Arc,
    time::Duration,
};
use thalweg_wire::{Destination, Host};
use tokio::{
    net::lookup_host,
    time::{Instant, timeout},
};

/// The number of cached answers, each for at most its TTL: far more names than a transfer has hosts.
const CACHED_ANSWERS: u64 = 128;

/// The number of interfaces whose resolvers are kept. Beyond it all are created anew.
const MAX_RESOLVERS: usize = 16;

/// How long one query waits for its answer before it is repeated, once.
const QUERY_TIMEOUT: Duration = Duration::from_secs(1);

/// How long servers that did not answer are not asked again; otherwise each dial would wait for them.
const SILENT_FOR: Duration = Duration::from_secs(60);

/// The resolver of one dialer. Clones share the cache.
#[derive(Clone, Default)]
pub(crate) struct NameResolver(Arc<Inner>);

#[derive(Default)]
struct Inner {
    sources: NameSources,
    by_interface: Mutex<BTreeMap<NonZeroU32, InterfaceResolver>>,
}

/// The resolver of one interface.
#[derive(Clone)]
struct InterfaceResolver {
    servers: Vec<IpAddr>,
    resolver: Arc<Resolver<BoundSockets>>,
    silent_until: Option<Instant>,
}

impl NameResolver {
    pub(crate) fn with_sources(sources: NameSources) -> Self {
        Self(Arc::new(Inner { sources, by_interface: Mutex::default() }))
    }

    /// The addresses of `host`, at least one, resolved over `interface` if one is given.
    ///
    /// # Errors
    /// [`Cause::Resolve`], [`Cause::NoAddress`].
    pub(crate) async fn resolve(
        &self,
        host: &Destination,
        interface: Option<NonZeroU32>,
    ) -> Result<Vec<SocketAddr>, Cause> {
        let (Host::Name(name), Some(interface)) = (&host.host, interface) else {
            return resolve(host).await;
        };
        let known = self.0.sources.host(name).await;
        if !known.is_empty() {
            return Ok(ordered(known, host.port));
        }
        if !is_for_servers(name) {
            return resolve(host).await;
        }
        match self.ask(name, interface).await {
            Ok(found) => Ok(ordered(found, host.port)),
            Err(LookupFailure::Answered(cause)) => Err(cause),
            Err(LookupFailure::Silent(why)) => {
                resolve(host).await.map_err(|cause| instead_of(interface, &why, cause))
            }
        }
    }

    /// Asks the servers of the interface, if there are any and they are not known to be silent.
    async fn ask(&self, name: &str, interface: NonZeroU32) -> Result<Vec<IpAddr>, LookupFailure> {
        let servers = self.0.sources.servers_of(interface).await;
        if servers.is_empty() {
            return Err(LookupFailure::Silent("no name server is known".to_owned()));
        }
        let shown = shown(&servers);
        let bound = self.bound(interface, servers)?;
        if bound.silent_until.is_some_and(|until| Instant::now() < until) {
            return Err(LookupFailure::Silent(format!("{shown} did not answer a moment ago")));
        }
        let name = absolute(name)?;
        let asked = timeout(self.0.sources.patience, bound.resolver.lookup_ip(name)).await;
        let why = match asked {
            Ok(Ok(found)) => return Ok(found.iter().collect()),
            Ok(Err(e)) if is_answer(&e) => {
                let what =
                    if e.is_nx_domain() { "no such name" } else { "the name has no address" };
                let text = format!("{what} (answer of {shown} through interface {interface})");
                let error = io::Error::new(io::ErrorKind::NotFound, text);
                return Err(LookupFailure::Answered(Cause::Resolve(error)));
            }
            Ok(Err(e)) => e.to_string(),
            Err(_) => "no answer".to_owned(),
        };
        self.silence(interface);
        Err(LookupFailure::Silent(format!("{shown}: {why}")))
    }

    /// The interface's resolver, created anew if its servers have changed.
    fn bound(
        &self,
        interface: NonZeroU32,
        servers: Vec<IpAddr>,
    ) -> Result<InterfaceResolver, LookupFailure> {
        let mut kept = self.0.by_interface.lock();
        if let Some(bound) = kept.get(&interface).filter(|bound| bound.servers == servers) {
            return Ok(bound.clone());
        }
        if kept.len() >= MAX_RESOLVERS {
            kept.clear();
        }
        let config = config(&servers, self.0.sources.port);
        let mut builder = Resolver::builder_with_config(config, BoundSockets::to(interface));
        *builder.options_mut() = options();
        let resolver = builder.build().map_err(|e| LookupFailure::Silent(e.to_string()))?;
        let bound = InterfaceResolver { servers, resolver: Arc::new(resolver), silent_until: None };
        kept.insert(interface, bound.clone());
        Ok(bound)
    }

    fn silence(&self, interface: NonZeroU32) {
        let mut kept = self.0.by_interface.lock();
        if let Some(bound) = kept.get_mut(&interface) {
            bound.silent_until = Some(Instant::now() + SILENT_FOR);
        }
    }
}

impl fmt::Debug for NameResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Names").field(&self.0.sources).finish()
    }
}

/// Why the servers of an interface gave no address.
enum LookupFailure {
    /// They answered that there is none.
    Answered(Cause),
    /// They did not answer, or there are none.
    Silent(String),
}

/// The addresses of `host` in the system resolver's order, at least one.
///
/// # Errors
/// [`Cause::Resolve`], [`Cause::NoAddress`].
pub async fn resolve(host: &Destination) -> Result<Vec<SocketAddr>, Cause> {
    let name = match &host.host {
        Host::Ip(ip) => return Ok(vec![SocketAddr::new(*ip, host.port)]),
        Host::Name(name) => name,
    };
    if is_below_localhost(name) {
        let loopback: [IpAddr; 2] = [Ipv6Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into()];
        return Ok(loopback.map(|ip| SocketAddr::new(ip, host.port)).to_vec());
    }
    let found = lookup_host((&**name, host.port)).await.map_err(Cause::Resolve)?;
    let addresses: Vec<_> = found.collect();
    if addresses.is_empty() { Err(Cause::NoAddress) } else { Ok(addresses) }
}

/// The error if the system's resolver, which was asked instead of the interface's servers, failed too.
fn instead_of(interface: NonZeroU32, why: &str, cause: Cause) -> Cause {
    let Cause::Resolve(error) = cause else { return cause };
    let text = format!(
        "{error} (answer of the system's resolver; through interface {interface}: \
                        {why})"
    );
    Cause::Resolve(io::Error::new(error.kind(), text))
}

/// Whether this is a name below `localhost`. All such names are this host (RFC 6761 §6.3), but many resolvers know only
/// `localhost`.
fn is_below_localhost(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    name.strip_suffix(".localhost").is_some_and(|label| !label.is_empty())
}

/// Whether name servers may know this name; see the [module](self).
fn is_for_servers(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    let last = name.rsplit('.').next().unwrap_or_default();
    name.contains('.') && !["local", "localhost"].contains(&last)
}

fn absolute(name: &str) -> Result<Name, LookupFailure> {
    let unsound =
        |e| LookupFailure::Answered(Cause::Resolve(io::Error::new(io::ErrorKind::InvalidInput, e)));
    let mut name = Name::from_utf8(name).map_err(unsound)?;
    name.set_fqdn(true);
    Ok(name)
}

/// Whether the error is an answer: the name does not exist, or has no address.
fn is_answer(error: &NetError) -> bool {
    let NetError::Dns(DnsError::NoRecordsFound(none)) = error else { return false };
    matches!(none.response_code, ResponseCode::NXDomain | ResponseCode::NoError)
}

fn config(servers: &[IpAddr], port: u16) -> ResolverConfig {
    let server = |ip: &IpAddr| {
        let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut c| {
            c.port = port;
            c
        });
        NameServerConfig::new(*ip, true, connections.to_vec())
    };
    ResolverConfig::from_parts(None, Vec::new(), servers.iter().map(server).collect())
}

fn options() -> ResolverOpts {
    let mut options = ResolverOpts::default();
    options.timeout = QUERY_TIMEOUT;
    options.attempts = 1;
    options.ip_strategy = LookupIpStrategy::Ipv6AndIpv4;
    options.cache_size = CACHED_ANSWERS;
    options.use_hosts_file = ResolveHosts::Never;
    options.server_ordering_strategy = ServerOrderingStrategy::UserProvidedOrder;
    options
}

/// Orders addresses by the precedence of RFC 6724 (§2.1), as the system's resolver does, and otherwise as received.
fn ordered(mut found: Vec<IpAddr>, port: u16) -> Vec<SocketAddr> {
    found.sort_by_key(|ip| std::cmp::Reverse(precedence(*ip)));
    found.into_iter().map(|ip| SocketAddr::new(ip, port)).collect()
}

fn precedence(ip: IpAddr) -> u8 {
    let IpAddr::V6(ip) = ip else { return 35 };
    match ip.segments() {
        _ if ip.is_loopback() => 50,
        [0x2002, ..] => 30,
        [0x2001, 0, ..] => 5,
        _ if ip.is_unique_local() => 3,
        _ => 40,
    }
}

fn shown(servers: &[IpAddr]) -> String {
    let servers: Vec<_> = servers.iter().map(IpAddr::to_string).collect();
    servers.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_need_the_systems_resolver_are_left_to_it() {
        for name in ["server", "server.", "printer.local", "LOCALHOST", "a.localhost", ""] {
            assert!(!is_for_servers(name), "{name}");
        }
        assert!(["www.example", "www.example.", "local.example"].iter().all(|n| is_for_servers(n)));
    }

    #[tokio::test]
    async fn names_below_localhost_are_this_host() {
        for name in ["a.localhost", "a.b.LocalHost", "a.localhost."] {
            let host = Destination { host: Host::Name(name.into()), port: 80 };
            let found = resolve(&host).await.unwrap();
            assert!(found.iter().all(|a| a.ip().is_loopback() && a.port() == 80), "{found:?}");
            assert_eq!(found.len(), 2, "{name}");
        }
        let others = ["localhost", ".localhost", "alocalhost", "localhost.example"];
        assert!(others.iter().all(|name| !is_below_localhost(name)));
    }

    #[test]
    fn addresses_are_tried_in_the_systems_order() {
        let given = ["fd54::1", "192.0.2.1", "2002::1", "2001:db8::1", "192.0.2.2"];
        let given = given.iter().map(|ip| ip.parse().unwrap()).collect();
        let expected = ["2001:db8::1", "192.0.2.1", "192.0.2.2", "2002::1", "fd54::1"];
        let found: Vec<_> = ordered(given, 1).iter().map(|a| a.ip().to_string()).collect();
        assert_eq!(found, expected);
    }
}
