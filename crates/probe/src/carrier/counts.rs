//! What is counted of riders.

use serde::{Deserialize, Serialize};
use std::ops::AddAssign;

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What went to a member and came from it, since the daemon started.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct Counts {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl AddAssign for Counts {
            fn add_assign(&mut self, other: Self) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

counts! {
    /// Packets that this host's programs sent to it.
    sent_packets,
    /// Bytes of them, IP's headers included.
    sent_bytes,
    /// Packets whose end rode in a probe.
    ridden_packets,
    /// Pieces of packets that rode.
    ridden_fragments,
    /// Bytes that rode.
    ridden_bytes,
    /// Bytes that rode a second time, where repeats are wanted.
    repeated_bytes,
    /// Probes that carried any of them.
    carrying_probes,
    /// Probes that might have, and carried nothing.
    empty_probes,
    /// Datagrams with packets alone, without a probe.
    own_datagrams,
    /// Packets of which the rest went by itself since it had waited long enough, or its train was over.
    timed_out_packets,
    /// Packets that went nowhere: no session came about, or the kernel took none.
    dropped_packets,
    /// Packets that came and were given to this host's programs.
    received_packets,
    /// Bytes of them.
    received_bytes,
    /// Pieces of packets that came.
    received_fragments,
    /// Pieces that came twice or too late, or fit nothing.
    refused_fragments,
    /// Packets that were given up since pieces were missing for too long.
    expired_packets,
    /// Packets that were none of its own, or not for this host.
    strange_packets,
    /// Packets that are not replies and are for ports that are not open to their sender.
    unasked_packets,
}
