//! The target files of one call's downloads, no two of which may be the same.

use super::Target;
use std::{
    collections::HashMap,
    path::{Component, Path, PathBuf},
};

/// The targets so far, as hashes, so that a million names need little memory.
#[derive(Default)]
pub(super) struct Targets {
    /// By the first 8 bytes of BLAKE3: a million names collide with a probability of 10⁻⁷.
    seen: HashMap<[u8; 8], usize>,
}

impl Targets {
    /// Records the target of request `number`.
    ///
    /// Names that the server chooses are not known yet; for these the part's lock and the check for an existing file
    /// decide.
    ///
    /// # Errors
    /// The number of an earlier request with the same target.
    pub(super) fn claim(&mut self, number: usize, target: &Target) -> Result<(), usize> {
        let Target::File(file) = target else { return Ok(()) };
        let name = plain(file);
        let mut key = [0; 8];
        let hash = blake3::hash(name.as_os_str().as_encoded_bytes());
        key.copy_from_slice(&hash.as_bytes()[..8]);
        match self.seen.get(&key) {
            Some(first) => Err(*first),
            None => {
                self.seen.insert(key, number);
                Ok(())
            }
        }
    }
}

/// The absolute path without `.` components. `..` stays, because its meaning depends on symbolic links.
fn plain(file: &Path) -> PathBuf {
    let absolute = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    absolute.components().filter(|c| !matches!(c, Component::CurDir)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_requests_cannot_have_the_same_target_file() {
        let mut targets = Targets::default();
        let file = |name: &str| Target::File(name.into());
        assert_eq!(targets.claim(0, &file("a")), Ok(()));
        assert_eq!(targets.claim(1, &file("b/a")), Ok(()));
        for same in ["a", "./a", ".//a"] {
            assert_eq!(targets.claim(2, &file(same)), Err(0), "{same}");
        }
        let here = std::env::current_dir().unwrap().join("b/./a");
        assert_eq!(targets.claim(3, &Target::File(here)), Err(1));
        assert_eq!(targets.claim(4, &Target::In("d".into())), Ok(()));
        assert_eq!(targets.claim(5, &Target::In("d".into())), Ok(()));
    }
}
