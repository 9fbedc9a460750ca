//! The nature of an application, from its name and the port that it calls.

use serde::{Deserialize, Serialize};

/// The nature of an application: the qualitative measure of §II-B.1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Nature {
    /// Somebody waits for each packet, as in calls and terminals. It wants the shortest round trip.
    Realtime,
    /// It moves much, and nobody waits for single packets. While nothing is known of it, its connections are expected
    /// to be large ([`crate::Applications::expected`]).
    Bulk,
    /// It is unknown: only what it moved before counts.
    #[default]
    Unknown,
}

/// Realtime programs, by the beginning of their names.
const REALTIME_PROGRAMS: &[&str] =
    &["skype", "zoom", "teams", "discord", "mosh", "ssh", "linphone", "jitsi", "mumble", "telnet"];

const BULK_PROGRAMS: &[&str] = &[
    "aria2",
    "curl",
    "wget",
    "rsync",
    "rclone",
    "scp",
    "sftp",
    "transmission",
    "qbittorrent",
    "deluge",
    "ftp",
    "lftp",
    "git",
    "apt",
    "dnf",
    "pacman",
    "steam",
    "borg",
    "restic",
];

/// SSH, telnet, SIP, STUN, RDP, VNC, mosh by its SSH.
const REALTIME_PORTS: &[u16] = &[22, 23, 3389, 3478, 5060, 5061, 5900];

/// FTP, rsync, BitTorrent, Git.
const BULK_PORTS: &[u16] =
    &[20, 21, 873, 6881, 6882, 6883, 6884, 6885, 6886, 6887, 6888, 6889, 9418];

impl Nature {
    /// The nature of a process with this name, if that is known, which calls this port. The name takes precedence.
    pub fn classify(process: Option<&str>, port: u16) -> Self {
        let named = |names: &[&str]| {
            process.is_some_and(|process| names.iter().any(|name| process.starts_with(name)))
        };
        if named(BULK_PROGRAMS) {
            Self::Bulk
        } else if named(REALTIME_PROGRAMS) {
            Self::Realtime
        } else if BULK_PORTS.contains(&port) {
            Self::Bulk
        } else if REALTIME_PORTS.contains(&port) {
            Self::Realtime
        } else {
            Self::Unknown
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_takes_precedence_over_the_port() {
        assert_eq!(Nature::classify(Some("rsync"), 22), Nature::Bulk);
        assert_eq!(Nature::classify(Some("ssh"), 22), Nature::Realtime);
        assert_eq!(Nature::classify(None, 22), Nature::Realtime);
        assert_eq!(Nature::classify(Some("firefox"), 443), Nature::Unknown);
        assert_eq!(Nature::classify(None, 6881), Nature::Bulk);
    }
}
