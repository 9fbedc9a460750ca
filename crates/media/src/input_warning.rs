//! What a splitter had to leave out, and why.

use thiserror::Error;

/// Something in the input that is not as it should be. The stream goes on.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InputWarning {
    /// Bytes that are no packets.
    #[error("{bytes} bytes that are no packets of a transport stream were passed over")]
    Unsynchronised {
        /// How many.
        bytes: u64,
    },
    /// Packets that their sender marks as damaged (`transport_error_indicator`).
    #[error("{packets} packets that their sender marks as damaged were left out")]
    Damaged {
        /// How many.
        packets: u64,
    },
    /// Packets are missing, by their counters.
    #[error(
        "packets of PID {pid} are missing in {gaps} places; a unit that lacks some is left out, and pictures go on at the next key frame"
    )]
    Gaps {
        /// Whose.
        pid: u16,
        /// In how many places.
        gaps: u64,
    },
    /// A unit is larger than a frame may be.
    #[error(
        "a unit of PID {pid} was left out: its NAL unit of type {nal} makes it larger than {limit} bytes; pictures go on at the next key frame"
    )]
    TooLarge {
        /// Whose.
        pid: u16,
        /// The type of the NAL unit in which the limit was passed; 255 if it is none.
        nal: u8,
        /// What a frame may have.
        limit: usize,
    },
    /// A unit is too large together with those of other PIDs that are not complete.
    #[error(
        "a unit of PID {pid} was left out: the units that are not complete have more than {limit} bytes together"
    )]
    TooMuch {
        /// Whose.
        pid: u16,
        /// What all may have.
        limit: usize,
    },
    /// Units that are no PES packets, or end too early.
    #[error("{units} units of PID {pid} were left out: they are cut short or no PES packets")]
    Corrupt {
        /// Whose.
        pid: u16,
        /// How many.
        units: u64,
    },
    /// Sections of tables that are damaged.
    #[error("{sections} damaged sections of the program tables (PID {pid}) were passed over")]
    BadTable {
        /// Where.
        pid: u16,
        /// How many.
        sections: u64,
    },
    /// There are no tables in the first megabytes.
    #[error(
        "no program {table} in the first {bytes} bytes: is this an MPEG transport stream? (ffmpeg: -f mpegts)"
    )]
    NoTables {
        /// What is missing: `association table (PAT)` or `map (PMT)`.
        table: &'static str,
        /// How much there was.
        bytes: u64,
    },
    /// Pictures come, but none at which decoding can begin.
    #[error(
        "no key frame in PID {pid} for {seconds} s: nobody can begin to decode it (ffmpeg: -g, -forced-idr 1)"
    )]
    NoKey {
        /// Whose.
        pid: u16,
        /// For how long.
        seconds: u64,
    },
    /// The pictures are scrambled: no class can be read.
    #[error("PID {pid} is scrambled: its pictures count as references")]
    Scrambled {
        /// Whose.
        pid: u16,
    },
    /// There is more of something than is followed.
    #[error("PID {pid} is not followed: a stream may have {limit} {what}")]
    TooMany {
        /// `programs`, `videos` or `elementary streams`.
        what: &'static str,
        /// The first that is too many.
        pid: u16,
        /// How many there may be.
        limit: usize,
    },
    /// The clock of a PID began anew.
    #[error("the clock of PID {pid} jumped; its frames go on where the last ones ended")]
    Jumped {
        /// Whose.
        pid: u16,
    },
}

impl InputWarning {
    /// Takes up another event of the same kind and PID.
    fn merge(&mut self, other: &Self) -> bool {
        match (self, other) {
            (Self::Unsynchronised { bytes: all }, Self::Unsynchronised { bytes: n })
            | (Self::Damaged { packets: all }, Self::Damaged { packets: n }) => *all += n,
            (Self::Gaps { pid, gaps: all }, Self::Gaps { pid: of, gaps: n })
            | (Self::Corrupt { pid, units: all }, Self::Corrupt { pid: of, units: n })
            | (Self::BadTable { pid, sections: all }, Self::BadTable { pid: of, sections: n })
                if pid == of =>
            {
                *all += n;
            }
            (own, other) => return *own == *other,
        }
        true
    }
}

/// Warnings that nobody has taken yet; those of one kind and PID are one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Warnings(Vec<InputWarning>);

impl Warnings {
    /// The most that wait.
    const MAX: usize = 64;

    pub(crate) fn add(&mut self, event: InputWarning) {
        let is_known = self.0.iter_mut().any(|known| known.merge(&event));
        if !is_known && self.0.len() < Self::MAX {
            self.0.push(event);
        }
    }

    pub(crate) fn take(&mut self) -> Vec<InputWarning> {
        std::mem::take(&mut self.0)
    }
}
