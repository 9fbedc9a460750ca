//! What one connection owes to the cap of its interface: one rule for programs' connections, downloads and bonds'
//! links. Pure.

use super::caps::{CONNECTION, on_the_way, with_headers};
use thalweg_net::TcpInfo;

/// What one connection moved, and how much of it was paid.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bill {
    /// Bytes of content that its owner read or wrote.
    content: u64,
    /// Bytes paid, including headers.
    paid: u64,
}

impl Bill {
    /// Its owner read or wrote this many bytes more.
    pub fn moved(&mut self, bytes: u64) {
        self.content = self.content.saturating_add(bytes);
    }

    /// Returns what is owed beyond what was paid, and marks it as paid. The larger one counts of the content with its
    /// headers, and of what the kernel has moved and is to move: both count the same bytes, so bytes that arrived
    /// unread are not paid once more when they are read. `more` bytes may still arrive.
    pub fn settle(&mut self, counts: Option<&TcpInfo>, more: u64) -> u64 {
        let kernels = |info: &TcpInfo| on_the_way(info) + with_headers(info.unsent.into());
        let content = with_headers(self.content).saturating_add(CONNECTION);
        let all = counts.map_or(0, kernels).max(content).saturating_add(more);
        let owed = all.saturating_sub(self.paid);
        self.paid += owed;
        owed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_larger_of_content_and_the_kernels_count_is_owed() {
        let mut bill = Bill::default();
        assert_eq!(bill.settle(None, 0), CONNECTION);
        bill.moved(16_000);
        assert_eq!(bill.settle(None, 0), 17_000);
        // More has arrived than was read, and some bytes were written but not sent.
        let info = TcpInfo { received: 30_000, unsent: 5_000, segments: 30, ..TcpInfo::default() };
        bill.moved(4_000);
        let owed = bill.settle(Some(&info), 0);
        let all = on_the_way(&info) + with_headers(5_000);
        assert_eq!(owed, all - 17_000 - CONNECTION);
        bill.moved(4_000);
        assert_eq!(bill.settle(Some(&info), 0), 0, "it was paid already");
        assert_eq!(bill.settle(None, 0), 0, "also where nobody asks the kernel");
        assert_eq!(bill.settle(Some(&info), 700), 700);
    }
}
