//! A second network namespace, joined to this one by a veth pair.
//!
//! What crosses it is neither delayed nor limited, but goes through two devices, as between hosts; on
//! loopback both ends share one, whose packets are as long as 64 KiB.

use anyhow::{Context as _, ensure};
use std::{
    fs,
    net::Ipv4Addr,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// This end's address.
pub const NEAR: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);

/// The other end's.
pub const FAR: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);

/// A namespace that is not there by then does not come.
const COMES: Duration = Duration::from_secs(10);

/// How often it is looked whether it is.
const LOOK: Duration = Duration::from_millis(5);

/// The namespace of a process that does nothing; it goes with this value, and the pair with it.
pub struct Far(Child);

impl Far {
    /// Joins a new namespace to this process's, which should be one of its own (`unshare --net`): its
    /// loopback is brought up, and it gets a device `near`.
    ///
    /// # Errors
    /// Without the right to do so; without `ip`, `unshare` and `nsenter`.
    pub fn join() -> anyhow::Result<Self> {
        let mut idle = Command::new("unshare");
        idle.args(["--net", "sleep", "infinity"]).stdin(Stdio::null()).stdout(Stdio::null());
        let far = Self(idle.spawn().context("`unshare` is missing")?);
        far.wait()?;
        let id = far.id().to_string();
        ip(&["link", "set", "lo", "up"])?;
        ip(&["link", "add", "near", "type", "veth", "peer", "name", "far", "netns", &id])?;
        ip(&["addr", "add", &format!("{NEAR}/24"), "dev", "near"])?;
        ip(&["link", "set", "near", "up"])?;
        far.ip(&["addr", "add", &format!("{FAR}/24"), "dev", "far"])?;
        far.ip(&["link", "set", "far", "up"])?;
        far.ip(&["link", "set", "lo", "up"])?;
        Ok(far)
    }

    /// The process whose namespace it is.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    fn wait(&self) -> anyhow::Result<()> {
        let since = Instant::now();
        let its = format!("/proc/{}/ns/net", self.id());
        // Until then it is this one's.
        while fs::read_link(&its).ok() == fs::read_link("/proc/self/ns/net").ok() {
            ensure!(since.elapsed() < COMES, "no new network namespace: it takes root");
            thread::sleep(LOOK);
        }
        Ok(())
    }

    fn ip(&self, args: &[&str]) -> anyhow::Result<()> {
        let mut inside = Command::new("nsenter");
        inside.args(["--target", &self.id().to_string(), "--net", "ip"]);
        done(inside.args(args))
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        // It may be gone already.
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

fn ip(args: &[&str]) -> anyhow::Result<()> {
    done(Command::new("ip").args(args))
}

fn done(command: &mut Command) -> anyhow::Result<()> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}
