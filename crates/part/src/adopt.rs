//! Taking over what another program left under the final name.

use super::{Part, PartError};
use rustix::{fs::copy_file_range, io::Errno};
use std::{fs::File, io, ops::Range, os::unix::fs::FileExt, path::Path};

/// The name that [`Part::delivered_by`] knows adopted bytes by. No path's name has blanks.
pub const ADOPTED: &str = "the existing file";

/// Copied at once where the system cannot copy from file to file.
const BLOCK: usize = 1 << 20;

impl Part {
    /// Takes over the file that lies under the final name as the object's first bytes, as
    /// far as they are missing; returns how many. None if it is empty, longer than the object,
    /// or not there.
    ///
    /// The rule: nothing says what these bytes are, so they are taken only if a digest will
    /// judge the whole. Until then they are not journaled: after a crash they are taken
    /// over again. The file itself stays as it is until publication. If the digest does
    /// not fit, [`delivered_by`](Self::delivered_by)`(`[`ADOPTED`]`)` is what to doubt.
    ///
    /// # Errors
    /// [`PartError::Unproven`] without an expected digest or a length;
    /// [`PartError::DiskFull`]; or the system's refusal.
    pub fn adopt(&mut self) -> Result<u64, PartError> {
        let target = self.place.target.clone();
        let Some(length) = self.key.length().filter(|_| !self.key.digests().is_empty()) else {
            return Err(PartError::Unproven(target));
        };
        let existing = match File::open(&target) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(0),
            opened => opened.map_err(PartError::io("open", &target))?,
        };
        let found = existing.metadata().map_err(PartError::io("look at", &target))?;
        if !found.is_file() || found.len() > length {
            return Ok(0);
        }
        let gaps = self.present.missing_of(&(0..found.len()));
        gaps.into_iter().try_fold(0, |sum, gap| {
            let n = gap.end - gap.start;
            self.take_over(&existing, gap).map(|()| sum + n)
        })
    }

    fn take_over(&mut self, existing: &File, gap: Range<u64>) -> Result<(), PartError> {
        self.verified = None;
        copy(existing, &self.file, gap.clone(), &self.place.part)?;
        self.distrust(ADOPTED);
        self.sources.insert(ADOPTED, gap.clone());
        self.present.insert(gap);
        self.whole.follow(&self.file, self.present.prefix());
        Ok(())
    }
}

/// Copies `range` to the same place; shares the blocks where the filesystem can.
pub(super) fn copy(
    from: &File,
    to: &File,
    range: Range<u64>,
    path: &Path,
) -> Result<(), PartError> {
    let (mut read, mut written) = (range.start, range.start);
    while read < range.end {
        let left = usize::try_from(range.end - read).unwrap_or(usize::MAX);
        match copy_file_range(from, Some(&mut read), to, Some(&mut written), left) {
            Ok(0) => {
                return Err(PartError::io("copy to", path)(io::ErrorKind::UnexpectedEof.into()));
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                return copy_plainly(from, to, read..range.end, path);
            }
            Err(e) => return Err(PartError::write(path, range.end - read)(e.into())),
        }
    }
    Ok(())
}

fn copy_plainly(from: &File, to: &File, range: Range<u64>, path: &Path) -> Result<(), PartError> {
    let mut block = vec![0; BLOCK];
    let mut at = range.start;
    while at < range.end {
        let n = BLOCK.min(usize::try_from(range.end - at).unwrap_or(BLOCK));
        from.read_exact_at(&mut block[..n], at).map_err(PartError::io("copy to", path))?;
        to.write_all_at(&block[..n], at).map_err(PartError::write(path, range.end - at))?;
        at += n as u64;
    }
    Ok(())
}
