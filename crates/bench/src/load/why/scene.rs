//! The scenes: what is slow, and which bound the verdict must name.

use super::network::LinkChange;
use thalweg_base::verdict::Bound;

/// A transfer with a known bottleneck.
pub struct Scene {
    /// The command, and what is slow.
    pub name: &'static str,
    /// The bound that its verdict must name.
    pub bound: Bound,
    /// Links that differ from the usual ones.
    pub links: &'static [LinkChange],
    /// The size of what is moved.
    pub size: Size,
    pub transfer: Transfer,
    /// What is slow besides links.
    pub trouble: Trouble,
    /// Further settings of all nodes, TOML.
    pub settings: &'static str,
}

/// How much is moved.
#[derive(Clone, Copy)]
pub enum Size {
    /// What a bottleneck of this rate, Mbit/s, carries in the time that the caller chose.
    AtRate(f64),
    /// A number of bytes.
    Bytes(usize),
}

/// The command under test; it runs at host `c`.
#[derive(Clone, Copy)]
pub enum Transfer {
    /// A download from the web server `w`, which has these faults (`thalweg-lab tool web-faults`).
    Get { faults: &'static str, options: &'static [&'static str] },
    /// A collection from the members `s` and `t`.
    Gather { options: &'static [&'static str] },
    /// Files to the member `s`.
    Send { options: &'static [&'static str] },
    /// A cast to the members `r`, `s` and `t`.
    Cast,
}

/// What is slow besides links.
#[derive(Clone, Copy)]
pub enum Trouble {
    None,
    /// Two other TCP flows to `c`.
    Rival,
    /// `c` has receive buffers of at most 64 KiB.
    SmallWindow,
    /// Each of these system calls of the program, or of the node, at this host takes this much longer, milliseconds:
    /// a disk, or a file system in the network, of so many operations per second.
    SlowDisk {
        host: &'static str,
        calls: &'static str,
        delay_ms: u32,
    },
}

const USUAL: Scene = Scene {
    name: "",
    bound: Bound::Unknown,
    links: &[],
    size: Size::AtRate(5.0),
    transfer: GET,
    trouble: Trouble::None,
    settings: "",
};

/// As a user downloads: all paths that this host knows.
const GET: Transfer = Transfer::Get { faults: "honest", options: &[] };

/// Over the direct path alone.
const GET_DIRECT: Transfer = Transfer::Get { faults: "honest", options: &["--path", "direct"] };

/// Through the relay alone.
const GET_RELAYED: Transfer = Transfer::Get { faults: "honest", options: &["--path", "r"] };

const GATHER: Transfer = Transfer::Gather { options: &[] };
const SEND: Transfer = Transfer::Send { options: &[] };

/// All scenes.
pub const SCENES: &[Scene] = &[
    Scene {
        name: "get-source-access",
        bound: Bound::Source,
        links: &[LinkChange::rate("w", 5.0)],
        ..USUAL
    },
    Scene {
        name: "get-own-access",
        bound: Bound::Access,
        links: &[LinkChange::rate("c", 5.0)],
        ..USUAL
    },
    // A third of the access link is left to the download.
    Scene {
        name: "get-rival",
        bound: Bound::Rival,
        links: &[LinkChange::rate("c", 10.0)],
        trouble: Trouble::Rival,
        ..USUAL
    },
    Scene {
        name: "get-lossy-path",
        bound: Bound::Path,
        links: &[LinkChange::loss("c-w", 3.0)],
        transfer: GET_DIRECT,
        ..USUAL
    },
    // The relay's path is slower still.
    Scene {
        name: "get-narrow-path",
        bound: Bound::Path,
        links: &[LinkChange::rate("c-w", 5.0), LinkChange::rate("r-w", 3.0)],
        ..USUAL
    },
    Scene {
        name: "get-relay-quota",
        bound: Bound::Relay,
        transfer: GET_RELAYED,
        settings: "[[oracle.rule]]\nquota = { rate = \"5 Mbit/s\" }\n",
        ..USUAL
    },
    Scene {
        name: "get-relay-leg",
        bound: Bound::Path,
        links: &[LinkChange::rate("r-w", 5.0)],
        transfer: GET_RELAYED,
        ..USUAL
    },
    Scene {
        name: "get-own-limit",
        bound: Bound::Limit,
        transfer: Transfer::Get { faults: "honest", options: &["--limit-rate", "5 Mbit/s"] },
        ..USUAL
    },
    // The answers to the first requests for ranges: come back in six seconds.
    Scene {
        name: "get-server-busy",
        bound: Bound::Server,
        size: Size::Bytes(2_000_000),
        transfer: Transfer::Get { faults: "busy=503:6x2", options: &[] },
        ..USUAL
    },
    Scene {
        name: "get-server-rate",
        bound: Bound::Source,
        transfer: Transfer::Get { faults: "rate=5Mbps", options: &[] },
        ..USUAL
    },
    // 64 KiB of buffer, about half of it window, in each round trip of 220 ms.
    Scene {
        name: "get-small-window",
        bound: Bound::Window,
        links: &[LinkChange::delay("c-w", 100)],
        size: Size::AtRate(2.0),
        transfer: GET_DIRECT,
        trouble: Trouble::SmallWindow,
        ..USUAL
    },
    Scene {
        name: "get-slow-disk",
        bound: Bound::Disk,
        trouble: Trouble::SlowDisk { host: "c", calls: "pwrite64", delay_ms: 20 },
        ..USUAL
    },
    Scene { name: "get-small-file", bound: Bound::Small, size: Size::Bytes(30_000), ..USUAL },
    Scene {
        name: "gather-source-access",
        bound: Bound::Source,
        links: &[LinkChange::rate("s", 5.0)],
        transfer: GATHER,
        ..USUAL
    },
    Scene {
        name: "gather-own-access",
        bound: Bound::Access,
        links: &[LinkChange::rate("c", 5.0)],
        transfer: GATHER,
        ..USUAL
    },
    Scene {
        name: "gather-source-disk",
        bound: Bound::Source,
        transfer: GATHER,
        trouble: Trouble::SlowDisk { host: "s", calls: "pread64", delay_ms: 400 },
        ..USUAL
    },
    // A delivery of 16 MiB or more uses several paths.
    Scene {
        name: "send-own-access",
        bound: Bound::Access,
        links: &[LinkChange::rate("c", 15.0)],
        size: Size::AtRate(15.0),
        transfer: SEND,
        ..USUAL
    },
    Scene {
        name: "send-receiver-disk",
        bound: Bound::Receiver,
        transfer: SEND,
        trouble: Trouble::SlowDisk { host: "s", calls: "pwrite64", delay_ms: 500 },
        ..USUAL
    },
    Scene {
        name: "cast-receiver-access",
        bound: Bound::Receiver,
        links: &[LinkChange::rate("t", 5.0)],
        transfer: Transfer::Cast,
        ..USUAL
    },
    Scene {
        name: "cast-own-access",
        bound: Bound::Access,
        links: &[LinkChange::rate("c", 5.0)],
        transfer: Transfer::Cast,
        ..USUAL
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn scenes_have_names_of_their_own_and_bounds() {
        let names: BTreeSet<&str> = SCENES.iter().map(|scene| scene.name).collect();
        assert_eq!((names.len(), SCENES.len()), (20, 20));
        for scene in SCENES {
            let command = match scene.transfer {
                Transfer::Get { .. } => "get-",
                Transfer::Gather { .. } => "gather-",
                Transfer::Send { .. } => "send-",
                Transfer::Cast => "cast-",
            };
            assert!(scene.name.starts_with(command), "{}", scene.name);
            assert_ne!(scene.bound, Bound::Unknown, "{}", scene.name);
        }
    }
}
