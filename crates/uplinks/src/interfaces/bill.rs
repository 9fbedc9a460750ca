//! What one connection owes its interface's cap: one rule for programs' connections, downloads and bonds' links. Pure.

use super::caps::{CONNECTION, on_the_way, with_headers};
use thalweg_net::TcpInfo;

/// What one connection moved, and what was paid of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bill {
    /// Content that its owner read or wrote, bytes.
    content: u64,
    /// Bytes, headers among them.
    paid: u64,
}

impl Bill {
    /// Its owner read or wrote so many bytes more.
    pub fn moved(&mut self, bytes: u64) {
        self.content = self.content.saturating_add(bytes);
    }

    /// What is owed beyond what was paid, and is paid by this. Content with its headers, or what the kernel has moved and
    /// is to move, whichever is more: they tell of the same bytes, so that what had come and was not read is not paid
    /// once more when it is. So much as `more` may come yet.
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
    fn what_is_larger_counts_content_or_what_the_kernel_tells() {
        let mut bill = Bill::default();
        assert_eq!(bill.settle(None, 0), CONNECTION);
        bill.moved(16_000);
        assert_eq!(bill.settle(None, 0), 17_000);
        // More has come than was read, and some is written that was not sent.
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
