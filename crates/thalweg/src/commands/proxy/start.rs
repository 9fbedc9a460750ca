//! Starts a proxy with this host's mesh, key, interfaces and history.

use super::{
    Log, ProxyPathArgs,
    interface_service::InterfaceService,
    memory::Memory,
    updater::{ProxyUpdater, open},
};
use crate::commands::{get::mesh::Mesh, history_file, host, uplinks};
use anyhow::anyhow;
use parking_lot::{Mutex, RwLock};
use std::{io, sync::Arc};
use thalweg_net::{DialOptions, Dialer, Route, SocketOptions};
use thalweg_paths::{
    detours::{DetourChooser, Detours},
    history::History,
};
use thalweg_proxy::{HostInterfaces, MARK, Proxy, ProxyConfig, ProxyError, RedirectSource};
use thalweg_uplinks::{
    bond::{Bonding, Settings},
    interfaces::Uplinks,
};

/// A proxy, and the task that keeps it up to date.
pub struct Running {
    /// The proxy, bound.
    pub proxy: Proxy,
    /// Keeps its mesh and its memory up to date.
    pub updater: ProxyUpdater,
}

/// Starts the proxy of this host. `note` receives remarks for the user.
///
/// # Errors
/// A fault of the arguments or the address.
pub async fn start(
    config: ProxyConfig,
    paths: &ProxyPathArgs,
    log: Arc<Log>,
    note: &dyn Fn(String),
) -> anyhow::Result<Running> {
    let mesh = open(paths);
    if let (true, Some(fault)) = (paths.tries_mesh(), mesh.fault()) {
        note(format!("no relays are tried: {fault}"));
    }
    paths.check(&mesh)?;
    let file = history_file::file(paths.history.as_deref(), &paths.state_dir);
    let settings = host::settings(paths.config.as_deref())?.interfaces.settings();
    let kept = uplinks::file(&settings, paths.history.as_deref(), &paths.state_dir);
    let uplinks = uplinks::open(settings, kept.clone(), note)?;
    let asks = marked(config.redirect_source);
    let (dialer, bonds) = dialer(&mesh, &uplinks, asks.clone());
    uplinks.set_probe_dialer(dialer.clone());
    let detours = match &file {
        Some(file) => Detours::open(&Detours::beside(file)),
        None => Detours::unkept(),
    };
    if let Some(problem) = detours.problem() {
        note(problem.to_owned());
    }
    let detours = Arc::new(Mutex::new(detours));
    let history = file.map(|file| (Arc::new(Mutex::new(History::open(&file))), file));
    let mesh = Arc::new(RwLock::new(mesh));
    let (seen, asked) = (Arc::clone(&mesh), paths.clone());
    let relays = Box::new(move |content| asked.relays(&seen.read(), content));
    let members = Arc::clone(&mesh);
    let standing = Box::new(move |route: &Route| members.read().still_has(route));
    let known = history.as_ref().map(|(history, _)| Arc::clone(history));
    let chooser = DetourChooser::new(relays, known, Arc::clone(&detours), paths.draw.into());
    let chooser = Arc::new(chooser.with_route_check(standing));

    let over = HostInterfaces { uplinks: uplinks.clone(), bonds: bonds.clone() };
    let bound = Proxy::bind_with_interfaces(config, dialer, Some(over), chooser, log).await;
    let proxy = bound.map_err(with_hint)?;
    let memory = Memory::new(history, detours);
    let (sockets, listen) = (kept.as_deref().map(uplinks::sockets), proxy.local_addr());
    let answering = InterfaceService { uplinks, bonds, sockets, listen };
    let reviewer = proxy.reviewer();
    let updater = ProxyUpdater::new(paths.clone(), mesh, memory, answering, reviewer, asks);
    Ok(Running { proxy, updater })
}

/// Options that mark the proxy's own connections if the kernel redirects connections to it, so that they are not
/// redirected back.
fn marked(source: RedirectSource) -> DialOptions {
    let mark = (source == RedirectSource::Rules).then_some(MARK);
    let socket = SocketOptions { mark, ..SocketOptions::default() };
    DialOptions { socket, ..DialOptions::default() }
}

/// The dialer, and the bonds if the host is in a mesh. No TCP_USER_TIMEOUT: a program may read as slowly as it likes,
/// with its window closed.
fn dialer(mesh: &Mesh, uplinks: &Uplinks, mut options: DialOptions) -> (Dialer, Option<Bonding>) {
    options.socket.user_timeout = None;
    match mesh.dialer(&options) {
        Some(dialer) => {
            let bonds = Bonding::with_uplinks(dialer.clone(), Settings::default(), uplinks.clone());
            (dialer.with_carrier(Arc::new(bonds.clone())), Some(bonds))
        }
        None => (Dialer::new(options), None),
    }
}

/// Adds what the user can try, in terms of the command's options.
fn with_hint(error: ProxyError) -> anyhow::Error {
    let hint = match &error {
        ProxyError::Open(_) => "listen on 127.0.0.1 or [::1]",
        ProxyError::NoConnections => "give --max-connections at least 1",
        ProxyError::Listen { source, .. } => match source.kind() {
            io::ErrorKind::AddrInUse => "is another proxy using it? --listen takes another port",
            io::ErrorKind::AddrNotAvailable => "this host does not have this address",
            io::ErrorKind::PermissionDenied => "ports below 1024 need root; choose a higher one",
            _ => return error.into(),
        },
    };
    anyhow!("{error}: {hint}")
}
