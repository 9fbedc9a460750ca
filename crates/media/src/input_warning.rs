//! What a splitter has skipped, and why.

use thiserror::Error;

/// A fault of the input that does not end the stream.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InputWarning {
    /// Bytes outside packets.
    #[error("skipped {bytes} bytes that are not transport stream packets")]
    Unsynchronised {
        /// Number of skipped bytes.
        bytes: u64,
    },
    /// Packets with the transport error indicator set.
    #[error("skipped {packets} packets with the transport error indicator set")]
    Damaged {
        /// Number of skipped packets.
        packets: u64,
    },
    /// The continuity counters show that packets are missing.
    #[error(
        "packets of PID {pid} are missing in {gaps} places; video resumes at the next key frame"
    )]
    Gaps {
        pid: u16,
        /// The number of gaps.
        gaps: u64,
    },
    /// A unit exceeds the maximum size of a frame.
    #[error(
        "skipped a unit of PID {pid} larger than {limit} bytes, in its NAL unit of type {nal}; video resumes at the next key frame"
    )]
    TooLarge {
        pid: u16,
        /// The type of the NAL unit at the limit; 255 if there is none.
        nal: u8,
        /// The maximum size, bytes.
        limit: usize,
    },
    /// The incomplete units of all PIDs together exceed their maximum size.
    #[error("skipped a unit of PID {pid}: incomplete units together exceed {limit} bytes")]
    BufferFull {
        pid: u16,
        /// The maximum size, bytes.
        limit: usize,
    },
    /// Units that are truncated or not PES packets.
    #[error("skipped {units} units of PID {pid} that are truncated or not PES packets")]
    Corrupt {
        pid: u16,
        /// The number of units.
        units: u64,
    },
    /// Damaged sections of program tables.
    #[error("skipped {sections} damaged sections of program tables (PID {pid})")]
    BadTable {
        pid: u16,
        /// The number of sections.
        sections: u64,
    },
    /// The first megabytes contain no tables.
    #[error(
        "no program {table} in the first {bytes} bytes: is this an MPEG transport stream? (ffmpeg: -f mpegts)"
    )]
    NoTables {
        /// The missing table: `association table (PAT)` or `map (PMT)`.
        table: &'static str,
        /// The number of bytes so far.
        bytes: u64,
    },
    /// A video has no key frame for a long time.
    #[error(
        "no key frame in PID {pid} for {seconds} s, so that it cannot be decoded (ffmpeg: -g, -forced-idr 1)"
    )]
    NoKeyFrame {
        pid: u16,
        /// The time without a key frame.
        seconds: u64,
    },
    /// Pictures are scrambled and cannot be classified.
    #[error("PID {pid} is scrambled: its pictures count as reference frames")]
    Scrambled { pid: u16 },
    /// The input has more of something than the splitter reads.
    #[error("PID {pid} is ignored: a stream has at most {limit} {what}")]
    TooMany {
        /// `programs`, `videos` or `elementary streams`.
        what: &'static str,
        /// The first PID that is ignored.
        pid: u16,
        /// The maximum number.
        limit: usize,
    },
    /// The clock of a PID was restarted.
    #[error("the clock of PID {pid} was restarted; its timeline continues")]
    ClockRestarted { pid: u16 },
}

impl InputWarning {
    /// Adds another warning of the same kind and PID. Returns false for another kind or PID.
    fn merge(&mut self, other: &Self) -> bool {
        match (self, other) {
            (Self::Unsynchronised { bytes: all }, Self::Unsynchronised { bytes: n })
            | (Self::Damaged { packets: all }, Self::Damaged { packets: n }) => *all += n,
            (Self::Gaps { pid, gaps: all }, Self::Gaps { pid: other_pid, gaps: n })
            | (Self::Corrupt { pid, units: all }, Self::Corrupt { pid: other_pid, units: n })
            | (
                Self::BadTable { pid, sections: all },
                Self::BadTable { pid: other_pid, sections: n },
            ) if pid == other_pid => {
                *all += n;
            }
            (own, other) => return *own == *other,
        }
        true
    }
}

/// Pending warnings, one for each kind and PID.
#[derive(Clone, Debug, Default)]
pub(crate) struct Warnings(Vec<InputWarning>);

impl Warnings {
    /// The maximum number; later ones are dropped.
    const MAX: usize = 64;

    pub(crate) fn add(&mut self, warning: InputWarning) {
        let is_known = self.0.iter_mut().any(|known| known.merge(&warning));
        if !is_known && self.0.len() < Self::MAX {
            self.0.push(warning);
        }
    }

    pub(crate) fn take(&mut self) -> Vec<InputWarning> {
        std::mem::take(&mut self.0)
    }
}
