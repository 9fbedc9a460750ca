//! Packet rules that lead this host's TCP connections to the proxy, as long as it lives.
//!
//! `nft -i` holds them: a table with an owner (`flags owner`, Linux 5.12) is gone with the process
//! that made it, and that process ends with its input, which is ours. So nothing is left behind by
//! a proxy that is killed.

use anyhow::{Context as _, bail};
use std::{
    io::{Read as _, Write as _},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};
use thalweg_node::proxy::{MARK, Redirected};

/// The rules stand so soon.
const PATIENCE: Duration = Duration::from_secs(5);

/// Between looks.
const LOOK: Duration = Duration::from_millis(20);

/// Rules that stand until this is dropped, or the process ends.
#[derive(Debug)]
pub struct Interception {
    holder: Child,
}

impl Interception {
    /// Leads all TCP connections of this host's programs to these ports, but those to this host
    /// itself and the proxy's own.
    ///
    /// # Errors
    /// What is missing, and what to do.
    pub fn begin(ports: Redirected) -> anyhow::Result<Self> {
        let table = format!("thalweg_proxy_{}", std::process::id());
        let mut holder = nft();
        holder.arg("-i").env("HOME", "/");
        holder.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        // A Ctrl-C of the terminal is for the proxy: it ends the rules before it drains.
        std::os::unix::process::CommandExt::process_group(&mut holder, 0);
        let holder = holder
            .spawn()
            .context("--transparent needs nftables' program `nft` (packages call it nftables)")?;
        let mut this = Self { holder };
        let mut input = this.holder.stdin.take().context("nft takes no input")?;
        let written = input.write_all(rules(&table, ports).as_bytes());
        // Open until the end: it is what holds the rules.
        this.holder.stdin = Some(input);
        match written.context("nft ended at once").and_then(|()| this.wait(&table)) {
            Ok(()) => Ok(this),
            Err(why) => bail!("--transparent: {why:#}{}", this.complaint()),
        }
    }

    fn wait(&mut self, table: &str) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            let mut list = nft();
            let listed = list.args(["list", "table", "inet", table]).output()?;
            if String::from_utf8_lossy(&listed.stdout).contains("redirect") {
                return Ok(());
            }
            if self.holder.try_wait()?.is_some() || began.elapsed() > PATIENCE {
                bail!("the packet rules cannot be set");
            }
            thread::sleep(LOOK);
        }
    }

    /// What nft said, in brackets, and what that mostly means.
    fn complaint(&mut self) -> String {
        _ = self.holder.kill();
        let mut said = String::new();
        if let Some(mut stderr) = self.holder.stderr.take() {
            _ = stderr.read_to_string(&mut said);
        }
        let first = said.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
        let hint = match first.contains("not permitted") {
            true => ": it is for root (CAP_NET_ADMIN)",
            false => "",
        };
        if first.is_empty() { String::new() } else { format!(" ({first}){hint}") }
    }
}

impl Drop for Interception {
    fn drop(&mut self) {
        _ = self.holder.kill();
        _ = self.holder.wait();
    }
}

/// Root's programs are not in everybody's path.
fn nft() -> Command {
    let mut nft = Command::new("nft");
    let path = std::env::var("PATH").unwrap_or_default();
    nft.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    nft
}

fn rules(table: &str, Redirected { v4, v6 }: Redirected) -> String {
    let mut rules = format!(
        "add table inet {table} {{ flags owner; }}\n\
         add chain inet {table} out {{ type nat hook output priority -100; policy accept; }}\n\
         add rule inet {table} out meta mark {MARK:#x} return\n\
         add rule inet {table} out fib daddr type {{ local, broadcast, multicast }} return\n"
    );
    let port = |family, port| {
        format!(
            "add rule inet {table} out meta nfproto {family} meta l4proto tcp redirect to :{port}\n"
        )
    };
    rules += &v6.map(|v6| port("ipv6", v6)).unwrap_or_default();
    // The last one is looked for.
    rules + &port("ipv4", v4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_connections_and_those_to_this_host_pass() {
        let rules = rules("t", Redirected { v4: 4444, v6: Some(6666) });
        let lines: Vec<&str> = rules.lines().collect();
        assert_eq!(lines.len(), 6, "{rules}");
        assert!(lines[0].contains("flags owner"));
        assert!(lines[2].ends_with("mark 0x74776c67 return"));
        assert!(lines[3].contains("local"));
        assert!(lines[4].contains("ipv6") && lines[4].ends_with(":6666"));
        assert!(lines[5].contains("ipv4") && lines[5].ends_with(":4444"));
    }
}
