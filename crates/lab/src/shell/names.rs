//! Host names inside the lab: mounts /etc/hosts and /etc/resolv.conf over the machine's files.

use anyhow::{Context, Result};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_change, unmount,
};
use std::{fmt::Write, fs, net::IpAddr, path::Path};
use thalweg_console::note;
use thalweg_lab::topology::Resolved;

/// The address at which every host's resolver listens, inside the host.
pub const RESOLVER: &str = "127.0.0.53";

/// Every name of the network with its addresses, IPv4 first.
///
/// A host's name and its additional names resolve to its first interface, `NAME.wanK` to interface k.
pub fn list_names(network: &Resolved) -> Vec<(String, Vec<IpAddr>)> {
    let addresses = |interface: usize| {
        let plan = &network.interfaces[interface];
        vec![IpAddr::V4(plan.v4), IpAddr::V6(plan.v6)]
    };
    let mut names = Vec::new();
    for host in &network.hosts {
        let Some(first) = host.interfaces.first() else { continue };
        for name in std::iter::once(&host.name).chain(&host.names) {
            names.push((name.clone(), addresses(*first)));
        }
        for (k, interface) in host.interfaces.iter().enumerate() {
            names.push((format!("{}.wan{k}", host.name), addresses(*interface)));
        }
    }
    names
}

fn hosts_file(names: &[(String, Vec<IpAddr>)]) -> String {
    let mut text = String::from("127.0.0.1 localhost\n::1 localhost ip6-localhost\n");
    for (name, addresses) in names {
        for address in addresses {
            let _infallible = writeln!(text, "{address} {name}");
        }
    }
    text
}

/// Separates this mount namespace from the machine's and mounts the lab's names and its /proc.
///
/// `scratch` is used for a temporary directory until the names are mounted.
pub fn mount_lab(scratch: &Path, names: &[(String, Vec<IpAddr>)]) -> Result<()> {
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .context("cannot make the mounts of the lab private")?;
    let directory = scratch.join(format!("names-{:?}", std::time::Instant::now()));
    fs::create_dir(&directory).with_context(|| format!("making {}", directory.display()))?;
    let mounted = mount_names(&directory, names);
    fs::remove_dir(&directory)?;
    mounted?;
    // Some containers forbid a fresh /proc: then `ps` shows the machine's processes; nothing else depends on it.
    let quiet = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    if let Err(e) = mount("proc", "/proc", "proc", quiet, None) {
        note!("thalweg-lab: note: hosts see this machine's /proc ({e})");
    }
    Ok(())
}

/// Creates the two files on an in-memory file system that exists as long as they are mounted.
///
/// Unlinked files would be simpler, but nothing can be mounted over them, so that no lab could run inside a lab.
fn mount_names(directory: &Path, names: &[(String, Vec<IpAddr>)]) -> Result<()> {
    let quiet = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("names", directory, "tmpfs", quiet, None).context("cannot mount a tmpfs")?;
    let resolver = format!("nameserver {RESOLVER}\noptions timeout:1\n");
    let mounted = mount_over(directory, "/etc/hosts", &hosts_file(names))
        .and_then(|()| mount_over(directory, "/etc/resolv.conf", &resolver));
    unmount(directory, UnmountFlags::DETACH)?;
    mounted
}

fn mount_over(directory: &Path, target: &str, text: &str) -> Result<()> {
    if !Path::new(target).exists() {
        note!(
            "thalweg-lab: note: {target} does not exist here: programs that read it cannot resolve lab names"
        );
        return Ok(());
    }
    let file = directory.join(target.rsplit('/').next().unwrap_or_default());
    fs::write(&file, text).with_context(|| format!("writing {}", file.display()))?;
    mount_bind(&file, target).with_context(|| format!("cannot mount over {target}"))
}
